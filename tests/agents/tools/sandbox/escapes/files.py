# SPDX-License-Identifier: Apache-2.0
"""Reading, changing and observing files of the host."""

SECRET = OUTSIDE + "/secret"
READABLE = OUTSIDE + "/readable"
HIDDEN = LANDLOCK or NAMESPACES  # other files cannot be opened
CLOSED = HIDDEN or OTHER_USER    # files that are their owner's alone cannot be opened


def read(path):
    with open(path, "rb") as file:
        return file.read(20)


def neighbours(folder):
    """Lists a folder in which the namespaces may show only the way to what is readable."""
    if len(os.listdir(folder)) == 1:  # outside of the sandbox it has more
        raise PermissionError("only what is readable is seen")
    return "more is seen"


def truncate_by_reading():
    os.close(os.open(READABLE, os.O_RDONLY | os.O_TRUNC))


if read(READABLE) != b"open":
    print("WRONG: what is readable was not read")
attempt("read the secret", lambda: read(SECRET), CLOSED)
attempt("write the secret", lambda: open(SECRET, "a").write("x"), CLOSED)
attempt("create", lambda: open(OUTSIDE + "/new", "w"), CLOSED)
attempt("remove", lambda: os.remove(SECRET), CLOSED)
attempt("rename", lambda: os.rename(SECRET, "mine"), CLOSED)
attempt("mkdir", lambda: os.mkdir(OUTSIDE + "/new"), CLOSED)
attempt("symlink outside", lambda: os.symlink("/", OUTSIDE + "/link"), CLOSED)
attempt("list outside", lambda: neighbours(OUTSIDE), HIDDEN)
attempt("list /home", lambda: os.listdir("/home"), HIDDEN)
attempt("list /root", lambda: os.listdir("/root"))
attempt("list the folder above", lambda: neighbours(os.path.dirname(OUTSIDE)), HIDDEN)
attempt("/etc/shadow", lambda: read("/etc/shadow"))
attempt("/etc/passwd", lambda: read("/etc/passwd"), HIDDEN)
attempt("/proc of the host", lambda: read(f"/proc/{HOST}/environ"), CLOSED)
attempt("memory of the host", lambda: open(f"/proc/{HOST}/mem", "r+b"), CLOSED)
attempt("command line of the host", lambda: read(f"/proc/{HOST}/cmdline"), HIDDEN)
attempt("descriptors of the host", lambda: os.listdir(f"/proc/{HOST}/fd"), CLOSED)
attempt("/proc/self", lambda: os.listdir("/proc/self"), LANDLOCK)
attempt("/proc/sys", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("a disk", lambda: os.open("/dev/vda", os.O_RDONLY))
attempt("kernel memory", lambda: os.open("/dev/mem", os.O_RDONLY))
attempt("the host's folder through its own link", lambda: (os.symlink(OUTSIDE, "out"), read("out/secret")), CLOSED)
attempt("upwards", lambda: neighbours("../../../../../../.." + OUTSIDE), HIDDEN)
attempt("write the system", lambda: open("/usr/lib/new", "w"))
attempt("stat", lambda: os.stat(SECRET).st_size, NAMESPACES)
attempt("stat of the shadow file", lambda: os.stat("/etc/shadow").st_size, NAMESPACES)
attempt("access", lambda: os.readlink(f"/proc/{HOST}/exe"), CLOSED)
attempt("utime", lambda: os.utime(SECRET, (1, 1)))
attempt("write what is readable", lambda: open(READABLE, "a").write("x"), CLOSED)
attempt("utime of a readable file", lambda: os.utime(READABLE, (1, 1)))
attempt("futimens", lambda: call("utimensat", os.open(READABLE, os.O_RDONLY), None, None, 0))
attempt("chmod", lambda: os.chmod(SECRET, 0o666))
attempt("chown", lambda: os.chown(SECRET, os.getuid(), -1))
attempt("truncate", lambda: os.truncate(SECRET, 0))
attempt("truncate by reading", truncate_by_reading)
attempt("hard link", lambda: os.link(SECRET, "mine"))
attempt("setxattr", lambda: os.setxattr(SECRET, "user.x", b"y"))
attempt("getxattr", lambda: os.listxattr(SECRET))
attempt("mknod", lambda: os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1)))
attempt("mkfifo", lambda: os.mkfifo("fifo"))
attempt("flock", lambda: fcntl.flock(os.open(READABLE, os.O_RDONLY), fcntl.LOCK_EX))
attempt("inotify", lambda: call("inotify_init1", 0))
attempt("fanotify", lambda: call("fanotify_init", 0, 0))
attempt("name_to_handle_at", lambda: call("name_to_handle_at", -100, b"/usr", ctypes.create_string_buffer(b"\x80", 140),
                                          ctypes.byref(ctypes.c_int()), 0))
attempt("open_by_handle_at", lambda: call("open_by_handle_at", 0, ctypes.create_string_buffer(136), 0))
attempt("openat2", lambda: call("openat2", -100, b"/usr", ctypes.create_string_buffer(24), 24))
attempt("splice", lambda: call("splice", 0, None, 1, None, 1, 0))
