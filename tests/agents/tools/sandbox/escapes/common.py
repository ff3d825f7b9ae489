# SPDX-License-Identifier: Apache-2.0
"""What the escapes share. The test puts these in front: HOST (a process), OUTSIDE (a folder of the host with the file
secret, the file readable, which may be read, and the socket mailbox), ABSTRACT (a socket's name), and what is in force:
LANDLOCK, NAMESPACES, OTHER_USER. An escape that failed to be blocked must not harm the machine that runs the tests."""

import ctypes
import fcntl
import os
import platform
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = platform.machine() == "x86_64"
NUMBERS = {  # x86_64, 64-bit Arm
    "add_key": (248, 217), "bpf": (321, 280), "capset": (126, 91), "clone": (56, 220), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281), "fanotify_init": (300, 262), "fsopen": (430, 430), "getpid": (39, 172),
    "init_module": (175, 105), "inotify_init1": (294, 26), "io_uring_setup": (425, 425), "kcmp": (312, 272),
    "kexec_load": (246, 104), "keyctl": (250, 219), "landlock_create_ruleset": (444, 444), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "openat2": (437, 437), "perf_event_open": (298, 241), "personality": (135, 92),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41),
    "prctl": (157, 167), "prlimit64": (302, 261), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "seccomp": (317, 277), "semget": (64, 190), "setns": (308, 268),
    "shmget": (29, 194), "splice": (275, 76), "syslog": (103, 116), "tgkill": (234, 131), "timer_create": (222, 107),
    "tkill": (200, 130), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "utimensat": (280, 88),
}


def call(name, *arguments):
    """A system call without the C library. Raises OSError."""
    return numbered(NUMBERS[name][0 if X86 else 1], *arguments)


def numbered(number, *arguments):
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *converted)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt(name, action, promised=True):
    """Says whether an escape was blocked: by an error of the system, and not because the attempt itself is wrong."""
    if not promised:
        return
    try:
        result = action()
    except OSError as error:
        wrong = error.errno in (14, 22, 9, 25)  # EFAULT, EINVAL, EBADF, ENOTTY
        print("WRONG" if wrong else "blocked", f"{name}: {error}")
    else:
        print(f"ESCAPED {name}: {result!r}")
