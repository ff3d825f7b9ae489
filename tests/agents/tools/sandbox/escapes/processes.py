# SPDX-License-Identifier: Apache-2.0
"""New processes, the memory of others, and programs that are no files."""

import signal

NEW = {"cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "process": 0x20000000,
       "network": 0x40000000, "mount": 0x00020000, "time": 0x80}
THREAD = 0x3d0f00  # the flags of a new thread


def cloned(flags):
    if call("clone", flags, 0, 0, 0, 0) == 0:
        os._exit(0)


local = ctypes.create_string_buffer(8)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(local), 8)
attempt("fork", os.fork)
attempt("posix_spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
attempt("clone", lambda: cloned(int(signal.SIGCHLD)))
attempt("clone with shared memory", lambda: cloned(0x100 | int(signal.SIGCHLD)))
attempt("clone of a sibling", lambda: cloned(0x8000 | int(signal.SIGCHLD)))
attempt("clone with high bits", lambda: cloned(0x200000000 | int(signal.SIGCHLD)))
attempt("clone3", lambda: call("clone3", ctypes.create_string_buffer(88), 88))
for kind, flag in NEW.items():
    attempt(f"unshare of a {kind} namespace", lambda: call("unshare", flag))
    attempt(f"clone into a {kind} namespace", lambda: cloned(flag | int(signal.SIGCHLD)))
attempt("thread in a user namespace", lambda: cloned(THREAD | NEW["user"]))
attempt("setns", lambda: call("setns", 0, NEW["mount"]))
attempt("ptrace attach", lambda: call("ptrace", 16, HOST, 0, 0))
attempt("ptrace traceme", lambda: call("ptrace", 0, 0, 0, 0))
attempt("process_vm_readv", lambda: call("process_vm_readv", HOST, vector, 1, vector, 1, 0))
attempt("process_vm_writev", lambda: call("process_vm_writev", HOST, vector, 1, vector, 1, 0))
attempt("process_madvise", lambda: call("process_madvise", 0, vector, 1, 4, 0))
attempt("kcmp", lambda: call("kcmp", HOST, HOST, 0, 0, 1))
attempt("pidfd_getfd", lambda: call("pidfd_getfd", 0, 0, 0))
attempt("memfd_create", lambda: call("memfd_create", b"program", 0))
attempt("write to the input", lambda: os.write(0, b"program"))
attempt("grow the input", lambda: os.ftruncate(0, 1 << 20))
attempt("memfd_secret", lambda: call("memfd_secret", 0))
attempt("execve", lambda: os.execv("/bin/true", ["true"]))
for unused in ((0, 0, 0), (-1, -1, -1), (ctypes.addressof(local),) * 3):
    attempt(f"execve with {unused}", lambda: call("execve", b"/bin/true", (ctypes.c_char_p * 1)(),
                                                  (ctypes.c_char_p * 1)(), *unused))
attempt("execveat", lambda: call("execveat", os.open("/bin/true", os.O_RDONLY), b"", (ctypes.c_char_p * 1)(),
                                 (ctypes.c_char_p * 1)(), 0x1000))
attempt("PR_SET_DUMPABLE", lambda: call("prctl", 4, 0, 0, 0, 0))
attempt("PR_SET_PTRACER", lambda: call("prctl", 0x59616d61, HOST, 0, 0, 0))
attempt("PR_SET_CHILD_SUBREAPER", lambda: call("prctl", 36, 1, 0, 0, 0))
attempt("PR_SET_MM", lambda: call("prctl", 35, 1, 0, 0, 0))
