# SPDX-License-Identifier: Apache-2.0
"""Reaching other processes and machines by sockets, and passing descriptors."""

import array


def pass_descriptor():
    left, right = socket.socketpair()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
    return left.sendmsg([b"x"], rights)


def receive_descriptor():
    left, right = socket.socketpair()
    right.send(b"x")
    return left.recvmsg(1, 64)


def send_from_datagrams(address):
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.connect(address)
    return left.send(b"letter")


def send_to(address):
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return left.sendto(b"letter", address)


def bind(address):
    left, right = socket.socketpair()
    left.bind(address)


MAILBOX = OUTSIDE + "/mailbox"
attempt("datagrams to a path", lambda: send_from_datagrams(MAILBOX))
attempt("datagrams to an abstract name", lambda: send_from_datagrams(ABSTRACT))
attempt("sendto a path", lambda: send_to(MAILBOX))
attempt("sendto an abstract name", lambda: send_to(ABSTRACT))
attempt("sendto from a stream", lambda: socket.socketpair()[0].sendto(b"letter", MAILBOX))
attempt("connect a stream", lambda: socket.socketpair()[0].connect(MAILBOX))
attempt("bind", lambda: bind("\0sandboxed"))
attempt("listen", lambda: socket.socketpair()[0].listen(1))
attempt("SCM_RIGHTS", pass_descriptor)
attempt("recvmsg", receive_descriptor)
attempt("seqpacket", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
for family, kind, protocol in ((socket.AF_UNIX, socket.SOCK_STREAM, 0), (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
                               (socket.AF_INET, socket.SOCK_STREAM, 0), (socket.AF_INET, socket.SOCK_DGRAM, 0),
                               (socket.AF_INET6, socket.SOCK_STREAM, 0), (socket.AF_NETLINK, socket.SOCK_RAW, 0),
                               (socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
                               (socket.AF_VSOCK, socket.SOCK_STREAM, 0)):
    attempt(f"socket of family {int(family)}", lambda: socket.socket(family, kind, protocol))
attempt("TCP", lambda: socket.create_connection(("127.0.0.1", 80), 1))
attempt("io_uring", lambda: call("io_uring_setup", 8, ctypes.create_string_buffer(120)))
