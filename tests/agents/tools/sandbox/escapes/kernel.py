# SPDX-License-Identifier: Apache-2.0
"""Administration of the system, rights of other users, objects that outlive the process, other tables of calls."""

import mmap

nothing = ctypes.create_string_buffer(256)
attempt("mount", lambda: call("mount", b"none", b".", b"tmpfs", 0, None))
attempt("bind mount", lambda: call("mount", b".", b".", None, 4096, None))
attempt("umount", lambda: call("umount2", b".", 2))
attempt("pivot_root", lambda: call("pivot_root", b".", b"."))
attempt("chroot", lambda: os.chroot("."))
attempt("fsopen", lambda: call("fsopen", b"tmpfs", 0))
attempt("open_tree", lambda: call("open_tree", -100, b"/", 1))
attempt("move_mount", lambda: call("move_mount", -100, b".", -100, b".", 0))
attempt("mount_setattr", lambda: call("mount_setattr", -100, b"/", 0, nothing, 32))
attempt("bpf", lambda: call("bpf", 0, nothing, 72))
attempt("perf_event_open", lambda: call("perf_event_open", nothing, 0, -1, -1, 0))
attempt("userfaultfd", lambda: call("userfaultfd", 1))
attempt("keyctl", lambda: call("keyctl", 0, -3, 1))
attempt("add_key", lambda: call("add_key", b"user", b"name", b"value", 5, -3))
attempt("request_key", lambda: call("request_key", b"user", b"name", None, -3))
attempt("personality", lambda: call("personality", 0x0040000))
attempt("seccomp", lambda: call("seccomp", 0, 0, None))
attempt("capset", lambda: call("capset", ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), nothing))
attempt("setuid", lambda: os.setuid(0))
attempt("setuid to itself", lambda: os.setuid(os.getuid()))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("setgid", lambda: os.setgid(0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("shmget", lambda: call("shmget", 0, 4096, 0o1600))
attempt("semget", lambda: call("semget", 0, 1, 0o1600))
attempt("msgget", lambda: call("msgget", 0, 0o1600))
attempt("mq_open", lambda: call("mq_open", b"queue", os.O_CREAT | os.O_RDWR, 0o600, None))
attempt("syslog", lambda: call("syslog", 10, None, 0))
attempt("init_module", lambda: call("init_module", nothing, 16, b""))
attempt("kexec_load", lambda: call("kexec_load", 0, 0, None, 0))
attempt("landlock_create_ruleset", lambda: call("landlock_create_ruleset", None, 0, 1))
attempt("a call of the future", lambda: numbered(500))
attempt("mseal", lambda: numbered(462, 0, 0, 0))
attempt("an unknown call", lambda: numbered(5000))


def interrupted(number):
    """The system call of 32-bit programs without arguments, made by the instruction int 0x80."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8" + struct.pack("I", number) + b"\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


if X86:
    attempt("i386 getpid", lambda: interrupted(20))
    attempt("i386 fork", lambda: interrupted(2))
    attempt("i386 sync", lambda: interrupted(36))
    attempt("x32 getpid", lambda: numbered(0x40000000 + 39))
    attempt("x32 ptrace", lambda: numbered(0x40000000 + 521, 0, 0, 0, 0))
    attempt("ptrace by its x32 number", lambda: numbered(521, 0, 0, 0, 0))
