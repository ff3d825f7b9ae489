# SPDX-License-Identifier: Apache-2.0
"""Reaching other processes by signals, directly and through descriptors; outliving the host."""

import resource
import signal

USR1 = int(signal.SIGUSR1)
info = ctypes.create_string_buffer(struct.pack("iii", USR1, 0, -1), 128)
if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1):
    print("WRONG: core files", resource.getrlimit(resource.RLIMIT_CORE))
attempt("kill", lambda: os.kill(HOST, USR1))
attempt("kill all", lambda: os.kill(-1, 0))
attempt("kill itself", lambda: os.kill(os.getpid(), 0))
attempt("killpg", lambda: os.killpg(HOST, USR1))
attempt("tkill", lambda: call("tkill", HOST, USR1))
attempt("tgkill", lambda: call("tgkill", HOST, HOST, USR1))
attempt("rt_sigqueueinfo", lambda: call("rt_sigqueueinfo", HOST, USR1, info))
attempt("rt_tgsigqueueinfo", lambda: call("rt_tgsigqueueinfo", HOST, HOST, USR1, info))
attempt("pidfd_open", lambda: call("pidfd_open", HOST, 0))
attempt("pidfd_send_signal", lambda: call("pidfd_send_signal", 0, USR1, None, 0))


def owned(owner, value):
    """Has the kernel send SIGIO to the host when data arrives."""
    left, right = socket.socketpair()
    if owner < 0x100 or owner == 1024:
        fcntl.fcntl(left, owner, value)
    else:
        fcntl.ioctl(left, owner, value)
    try:
        fcntl.ioctl(left, 0x5452, struct.pack("i", 1))  # FIOASYNC
    except OSError:
        fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC)
    right.send(b"x")
    return "owner set"


attempt("FIOSETOWN", lambda: owned(0x8901, struct.pack("i", HOST)))
attempt("SIOCSPGRP", lambda: owned(0x8902, struct.pack("i", HOST)))
attempt("F_SETOWN", lambda: owned(8, HOST))
attempt("F_SETOWN_EX", lambda: owned(15, struct.pack("ii", 1, HOST)))
attempt("F_SETSIG", lambda: owned(10, USR1))
attempt("FIOASYNC", lambda: fcntl.ioctl(socket.socketpair()[0], 0x5452, struct.pack("i", 1)))
attempt("O_ASYNC", lambda: fcntl.fcntl(socket.socketpair()[0], fcntl.F_SETFL, os.O_ASYNC))
attempt("F_NOTIFY", lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, 4))
attempt("F_SETLEASE", lambda: fcntl.fcntl(open("lease", "w"), 1024, 1))
attempt("TIOCSTI", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attempt("TIOCSPGRP", lambda: fcntl.ioctl(0, 0x5410, struct.pack("i", HOST)))
attempt("timer_create", lambda: call("timer_create", 0, None, ctypes.byref(ctypes.c_int())))
attempt("PR_SET_PDEATHSIG 0", lambda: call("prctl", 1, 0, 0, 0, 0))
attempt("PR_SET_PDEATHSIG SIGCHLD", lambda: call("prctl", 1, 17, 0, 0, 0))
attempt("PR_SET_PDEATHSIG with high bits", lambda: call("prctl", 0x100000001, 0, 0, 0, 0))
attempt("setsid", os.setsid)
attempt("setpgid", lambda: os.setpgid(0, HOST))
attempt("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, HOST, 0))
attempt("prlimit", lambda: resource.prlimit(HOST, resource.RLIMIT_NOFILE, (8, 8)))
attempt("limits of process 1", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE))
attempt("core files", lambda: call("prlimit64", 0, 4, ctypes.create_string_buffer(16), None))
attempt("getpgid", lambda: os.getpgid(HOST))
attempt("getsid", lambda: os.getsid(HOST))
attempt("sched_setaffinity", lambda: os.sched_setaffinity(HOST, {0}))
attempt("sched_setscheduler", lambda: os.sched_setscheduler(HOST, os.SCHED_BATCH, os.sched_param(0)))
