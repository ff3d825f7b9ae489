// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/sandbox/plan.h"

#include <fmt/format.h>
#include <linux/landlock.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "agents/tools/sandbox/process.h"
#include "engine/base/clock.h"
#include "engine/base/system/file.h"

namespace baton {
namespace {

using Conditions = std::initializer_list<scmp_arg_cmp>;

struct FilterDeleter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

/// A filter that denies all calls except those that it is told to allow.
class FilterBuilder {
 public:
  FilterBuilder() : filter_(seccomp_init(SCMP_ACT_ERRNO(EPERM))) {
    if (!filter_ || seccomp_attr_set(filter_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) != 0) {
      throw std::runtime_error("seccomp: cannot make a filter");
    }
  }

  void allow(std::initializer_list<const char*> names) {
    for (const char* name : names) add(SCMP_ACT_ALLOW, name, {});
  }

  /// Allows the call if all conditions hold. Conditions of several rules for one call are alternatives.
  void allow_if(const char* name, Conditions conditions) { add(SCMP_ACT_ALLOW, name, conditions); }

  void deny(std::initializer_list<const char*> names, int error) {
    for (const char* name : names) add(SCMP_ACT_ERRNO(static_cast<unsigned>(error)), name, {});
  }

  void deny_numbers(int begin, int end, int error) {
    for (int number = begin; number < end; ++number) {
      add(SCMP_ACT_ERRNO(static_cast<unsigned>(error)), number, std::to_string(number), {});
    }
  }

  /// Before version 2.6, libseccomp writes programs to files only: here to a pipe, since a file could exceed the host's
  /// limit of file sizes, whose signal would end the host.
  std::vector<sock_filter> program() const {
    constexpr std::size_t kMaxBytes = BPF_MAXINSNS * sizeof(sock_filter);
    int ends[2] = {-1, -1};
    int problem = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 ? 0 : -errno;
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    if (problem == 0 && fcntl(in.get(), F_GETPIPE_SZ) < static_cast<int>(kMaxBytes) &&
        fcntl(in.get(), F_SETPIPE_SZ, kMaxBytes) < 0) {
      problem = -errno;
    }
    if (problem == 0) problem = seccomp_export_bpf(filter_.get(), in.get());
    if (problem != 0) {
      throw std::runtime_error(std::string("seccomp: cannot make the program: ") + std::strerror(-problem));
    }
    in.reset();
    std::vector<sock_filter> program(BPF_MAXINSNS);
    std::size_t done = 0;
    while (done < kMaxBytes) {
      const ssize_t bytes = read(out.get(), reinterpret_cast<char*>(program.data()) + done, kMaxBytes - done);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) break;
      done += static_cast<std::size_t>(bytes);
    }
    if (done == 0 || done % sizeof(sock_filter) != 0) {
      throw std::runtime_error("seccomp: cannot read the whole program");
    }
    program.resize(done / sizeof(sock_filter));
    return program;
  }

 private:
  void add(std::uint32_t action, const char* name, Conditions conditions) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;  // newer than the library: it stays denied
    add(action, number, name, conditions);
  }

  void add(std::uint32_t action, int number, const std::string& name, Conditions conditions) {
    const int problem = seccomp_rule_add_array(filter_.get(), action, number, static_cast<unsigned>(conditions.size()),
                                               conditions.begin());
    if (problem < 0 && problem != -EDOM) {  // EDOM: the architecture has no such call
      throw std::runtime_error("seccomp: cannot add a rule for " + name + ": " + std::strerror(-problem));
    }
  }

  std::unique_ptr<void, FilterDeleter> filter_;
};

/// The argument's bits under the mask equal the value.
scmp_arg_cmp bits(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

/// The argument, of which the kernel reads 32 bits, equals the value.
scmp_arg_cmp is(unsigned argument, scmp_datum_t value) { return bits(argument, 0xffffffff, value); }

void allow_memory_and_threads(FilterBuilder& filter) {
  filter.allow({"brk", "mmap", "munmap", "mprotect", "mremap", "madvise", "msync", "get_mempolicy"});
  filter.allow({"futex", "set_robust_list", "set_tid_address", "rseq", "arch_prctl", "riscv_hwprobe"});
  // Threads only, with exactly the C library's flags; musl's has CLONE_DETACHED, which does nothing. A filter cannot
  // read the flags of clone3.
  constexpr scmp_datum_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                   CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  filter.allow_if("clone", {bits(0, ~scmp_datum_t{CLONE_DETACHED}, kThread)});
  filter.deny({"clone3"}, ENOSYS);
  filter.allow({"execve"});  // with the key that starts the interpreter (make_process_filter)
  filter.allow({"exit", "exit_group", "wait4", "waitid", "restart_syscall"});
  filter.allow({"sched_yield", "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_get_priority_max",
                "sched_get_priority_min", "getcpu"});
  filter.allow_if("sched_setaffinity", {is(0, 0)});
}

void allow_time_and_signals(FilterBuilder& filter) {
  filter.allow({"nanosleep", "clock_nanosleep", "clock_gettime", "clock_gettime64", "clock_getres", "gettimeofday",
                "time", "times", "getrusage"});
  // Its own handlers and alarms. Sending a signal, even to itself, needs a call that also reaches others.
  filter.allow({"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend",
                "sigaltstack", "pause", "alarm", "setitimer", "getitimer"});
}

void allow_files(FilterBuilder& filter) {
  filter.allow({"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2",
                "lseek", "close", "close_range", "fsync", "fdatasync", "ftruncate", "copy_file_range", "sendfile"});
  filter.allow({"stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat",
                "faccessat2", "readlink", "readlinkat", "getdents", "getdents64"});
  filter.allow({"getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat",
                "renameat2", "symlink", "symlinkat", "umask", "creat"});
  filter.allow({"dup", "dup2", "dup3", "pipe", "pipe2", "poll", "ppoll", "select", "pselect6", "epoll_create",
                "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2"});
  // Before Landlock 3, a file that may be read can be truncated by an open without write access.
  for (const auto& [name, flags] : {std::pair{"open", 1u}, std::pair{"openat", 2u}}) {
    filter.allow_if(name, {bits(flags, O_TRUNC, 0)});
    filter.allow_if(name, {bits(flags, O_TRUNC | O_ACCMODE, O_TRUNC | O_WRONLY)});
    filter.allow_if(name, {bits(flags, O_TRUNC | O_ACCMODE, O_TRUNC | O_RDWR)});
  }
  filter.deny({"openat2"}, ENOSYS);
  // Disk space without a write, which is not counted if there is no file system of its own: the C library writes.
  filter.deny({"fallocate"}, EOPNOTSUPP);
  // As on a file system without attributes, which programs that copy files expect.
  filter.deny({"getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"}, EOPNOTSUPP);

  // Not: owners and signals of descriptors, leases, notifications, seals, sizes of pipes.
  for (const int command : {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_GETLK, F_SETLK, F_SETLKW,
                            F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW}) {
    for (const char* name : {"fcntl", "fcntl64"}) filter.allow_if(name, {is(1, static_cast<scmp_datum_t>(command))});
  }
  for (const char* name : {"fcntl", "fcntl64"}) filter.allow_if(name, {is(1, F_SETFL), bits(2, O_ASYNC, 0)});

  constexpr scmp_datum_t kGetTerminal2 = 0x802c542a;  // TCGETS2, which the C library's headers do not have
  for (const scmp_datum_t request :
       {scmp_datum_t{TCGETS}, kGetTerminal2, scmp_datum_t{TIOCGWINSZ}, scmp_datum_t{FIONREAD}, scmp_datum_t{FIONBIO},
        scmp_datum_t{FIOCLEX}, scmp_datum_t{FIONCLEX}}) {
    filter.allow_if("ioctl", {is(1, request)});
  }

  // A pair of connected streams, with which event loops wake up themselves. Streams cannot be connected anew, and no
  // descriptors are passed without sendmsg.
  constexpr scmp_datum_t kType = 0xffffffff & ~scmp_datum_t{SOCK_CLOEXEC | SOCK_NONBLOCK};
  filter.allow_if("socketpair", {is(0, AF_UNIX), bits(1, kType, SOCK_STREAM), is(2, 0)});
  const auto in_band = bits(3, MSG_OOB, 0);
  filter.allow_if("sendto", {{4, SCMP_CMP_EQ, 0, 0}, in_band});
  filter.allow_if("recvfrom", {in_band});
  filter.allow({"shutdown"});
}

void allow_questions(FilterBuilder& filter) {
  filter.allow({"getpid", "gettid", "getppid", "getpgrp", "getuid", "geteuid", "getgid", "getegid", "getgroups",
                "getresuid", "getresgid", "uname", "sysinfo", "getrandom", "getrlimit"});
  filter.allow_if("getpgid", {is(0, 0)});
  filter.allow_if("getsid", {is(0, 0)});
  // Its own limits. Not that of core files: at 1, unlike at 0, the kernel starts no program that collects them.
  filter.allow_if("prlimit64", {is(0, 0), {2, SCMP_CMP_EQ, 0, 0}});
  for (const int limit : {RLIMIT_STACK, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_FSIZE}) {
    filter.allow_if("prlimit64", {is(0, 0), is(1, static_cast<scmp_datum_t>(limit))});
    filter.allow_if("setrlimit", {is(0, static_cast<scmp_datum_t>(limit))});
  }
  constexpr scmp_datum_t kNameMemory = 0x53564d41;  // PR_SET_VMA; newer than some headers
  for (const scmp_datum_t option : {scmp_datum_t{PR_SET_NAME}, scmp_datum_t{PR_GET_NAME}, scmp_datum_t{PR_GET_DUMPABLE},
                                    scmp_datum_t{PR_GET_PDEATHSIG}, scmp_datum_t{PR_CAPBSET_READ}, kNameMemory}) {
    filter.allow_if("prctl", {is(0, option)});
  }
}

constexpr std::uint32_t offset_of_low_half(int argument) {
  const std::size_t offset = offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(argument);
  return static_cast<std::uint32_t>(offset + (std::endian::native == std::endian::little ? 0 : 4));
}

constexpr std::uint32_t offset_of_high_half(int argument) { return offset_of_low_half(argument) ^ 4; }

}  // namespace

ExecKey make_exec_key() {
  ExecKey key{};
  ssize_t bytes = -1;
  do {
    bytes = getrandom(key.data(), sizeof(key), 0);
  } while (bytes < 0 && errno == EINTR);
  if (bytes != sizeof(key)) {
    throw std::system_error(errno, std::generic_category(), "sandbox: cannot get random numbers");
  }
  return key;
}

std::vector<sock_filter> make_process_filter(const ExecKey& key, bool shared_files) {
  constexpr int kFirstUnused = 3;  // among the six argument registers: execve has three arguments
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_filter deny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  const auto load = [](std::uint32_t offset) -> sock_filter { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); };
  std::vector<sock_filter> of_execve;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const int argument = kFirstUnused + static_cast<int>(i);
    of_execve.push_back(load(offset_of_low_half(argument)));
    of_execve.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(key[i]), 1, 0));
    of_execve.push_back(deny);
    of_execve.push_back(load(offset_of_high_half(argument)));
    of_execve.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(key[i] >> 32), 1, 0));
    of_execve.push_back(deny);
  }
  of_execve.push_back(allow);

  std::vector<sock_filter> filter{load(offsetof(seccomp_data, nr))};
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, static_cast<unsigned char>(of_execve.size())));
  filter.insert(filter.end(), of_execve.begin(), of_execve.end());
  if (!shared_files) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0));
    filter.push_back(allow);
    filter.push_back(load(offset_of_low_half(3)));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 1, 0));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 1, 0));  // MAP_SHARED_VALIDATE has this bit, too
    filter.push_back(allow);
    filter.push_back(deny);
  } else {
    filter.push_back(allow);
  }
  return filter;
}

std::vector<sock_filter> make_seccomp_filter() {
  // A kernel with filters fails because of the null program.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) != -1 || errno != EFAULT) return {};
  FilterBuilder filter;
  allow_memory_and_threads(filter);
  allow_time_and_signals(filter);
  allow_files(filter);
  allow_questions(filter);
  // Callers of these have another way if the kernel lacks them.
  filter.deny({"io_uring_setup", "io_uring_enter", "io_uring_register", "futex_waitv"}, ENOSYS);
  filter.deny_numbers(451, 512, ENOSYS);  // newer than this list; their numbers are the same on all architectures
  return filter.program();
}

namespace {

[[noreturn]] void landlock_failed(const std::string& what) {
  throw std::runtime_error("landlock: " + what + ": " + std::strerror(errno));
}

/// The kernel's landlock_ruleset_attr of version 6, which is newer than some headers.
struct RulesetAttributes {
  std::uint64_t files = 0;
  std::uint64_t network = 0;  // since version 4
  std::uint64_t scoped = 0;   // since version 6
};

constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kFilesOfVersion1 = (1u << 13) - 1;
constexpr std::uint64_t kRefer = 1u << 13;        // since version 2: rename from one folder to another
constexpr std::uint64_t kTruncate = 1u << 14;     // since version 3
constexpr std::uint64_t kDeviceIoctl = 1u << 15;  // since version 5
constexpr std::uint64_t kBindAndConnectTcp = 3;   // since version 4
constexpr std::uint64_t kSocketsAndSignals = 3;   // since version 6

}  // namespace

int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

LandlockRules make_landlock_rules(const std::vector<std::filesystem::path>& readable) {
  const int version = landlock_version();
  if (version == 0) return {};
  RulesetAttributes attributes;
  attributes.files = kFilesOfVersion1;
  if (version >= 2) attributes.files |= kRefer;
  if (version >= 3) attributes.files |= kTruncate;
  if (version >= 5) attributes.files |= kDeviceIoctl;
  if (version >= 4) attributes.network = kBindAndConnectTcp;
  if (version >= 6) attributes.scoped = kSocketsAndSignals;
  const std::size_t bytes = sizeof(std::uint64_t) * (version >= 6 ? 3 : version >= 4 ? 2 : 1);
  UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0)));
  if (rules && rules.get() <= STDERR_FILENO)  // the child puts other files there
    rules = UniqueFd(fcntl(rules.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!rules) landlock_failed("cannot make a ruleset");

  const auto allow = [&](const std::filesystem::path& path, std::uint64_t access) {
    const UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!place) {
      // A path is left out only if it cannot be read anyway: a program without its libraries does not start.
      for (const int absent : {ENOENT, ENOTDIR, EACCES, ELOOP, ENXIO, ENODEV}) {
        if (errno == absent) return;
      }
      landlock_failed("cannot open " + path.string());
    }
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) access &= ~std::uint64_t{LANDLOCK_ACCESS_FS_READ_DIR};
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access;
    rule.parent_fd = place.get();
    if (syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
      landlock_failed("cannot add a rule for " + path.string());
    }
  };
  for (const std::filesystem::path& path : readable) allow(path, kRead);
  allow("/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
  return {std::move(rules), attributes.files & ~(kDeviceIoctl | LANDLOCK_ACCESS_FS_EXECUTE)};
}

namespace {

namespace fs = std::filesystem;

constexpr auto kOpenToAll = fs::perms(0755);

/// Makes `path` and all folders between it and `root`; any user may enter them.
void make_folders(const fs::path& root, const fs::path& path) {
  fs::path folder = root;
  for (const fs::path& part : path.relative_path()) {
    folder /= part;
    if (fs::create_directory(folder)) fs::permissions(folder, kOpenToAll);
  }
}

/// Makes a file to mount on. If it were missing, mounting would fail later as if it were not allowed.
void make_file(const fs::path& path) {
  if (UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))) return;
  throw fs::filesystem_error("sandbox: cannot make a file", path, std::error_code(errno, std::generic_category()));
}

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(path.begin(), path.end(), folder.begin(), folder.end()).second == folder.end();
}

}  // namespace

SandboxView make_sandbox_view(const fs::path& root, std::vector<fs::path> readable, const fs::path& program) {
  SandboxView view;
  view.root = root.string();
  fs::permissions(root, kOpenToAll);
  std::error_code ignored;
  for (fs::path& path : readable) path = path.lexically_normal();
  std::sort(readable.begin(), readable.end());  // a folder stands in front of what is in it
  readable.erase(std::unique(readable.begin(), readable.end()), readable.end());
  fs::path last = "/";
  for (const fs::path& path : readable) {
    if (!fs::exists(path, ignored) || (last.has_relative_path() && is_below(path, last))) continue;
    const fs::path target = root / path.relative_path();
    if (fs::is_directory(path)) {
      make_folders(root, path);
      last = path;
    } else {
      make_folders(root, path.parent_path());
      make_file(target);
    }
    view.mounts.push_back({path.string(), target.string(), fs::is_character_file(path)});
  }
  make_folders(root, "/proc/self");
  if (!program.empty()) fs::create_symlink(program, root / "proc/self/exe");
  make_folders(root, SandboxView::kFolder);
  view.folder = view.root + SandboxView::kFolder;
  return view;
}

namespace {

constexpr rlim_t kMaxFileBytes = 16 << 20;
constexpr rlim_t kMaxOpenFiles = 64;
constexpr uid_t kNobody = 65534;  // the kernel's own number for a user who owns nothing
constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

std::vector<std::filesystem::path> readable_paths(const SandboxRequest& request) {
  std::vector<std::filesystem::path> readable{"/usr",
                                              "/bin",
                                              "/lib",
                                              "/lib64",
                                              "/nix/store",
                                              "/gnu/store",
                                              "/etc/ld.so.cache",
                                              "/etc/localtime",
                                              "/etc/alternatives",
                                              "/etc/mime.types",
                                              "/dev/null",
                                              "/dev/urandom",
                                              "/dev/random",
                                              "/dev/zero",
                                              "/proc/cpuinfo",
                                              "/proc/meminfo",
                                              "/sys/devices/system/cpu"};
  readable.insert(readable.end(), request.readable.begin(), request.readable.end());
  return readable;
}

std::vector<SandboxChild::Limit> limits_of(const SandboxRequest& request) {
  const auto seconds = static_cast<rlim_t>((bounded_wait(request.timeout).count() + 999) / 1000 + 1);
  const std::pair<int, rlim_t> wanted[] = {
      {RLIMIT_AS, static_cast<rlim_t>(request.memory_bytes)},
      {RLIMIT_CPU, seconds},
      {RLIMIT_FSIZE, kMaxFileBytes},
      {RLIMIT_NOFILE, kMaxOpenFiles},
      {RLIMIT_CORE, 1},  // no core file, and unlike with 0 no program of the system that collects it
  };
  std::vector<SandboxChild::Limit> limits;
  for (const auto& [resource, value] : wanted) {
    rlimit old{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &old) != 0) {
      throw std::system_error(errno, std::generic_category(), "sandbox: cannot read a limit");
    }
    const rlim_t allowed = std::min(value, old.rlim_max);  // only root could raise the hard limit
    limits.push_back({resource, {allowed, allowed}});
  }
  return limits;
}

/// Returns a bound of the host's descriptors, in case each has to be closed by its own call.
unsigned max_descriptors() {
  constexpr rlim_t kMin = 1 << 16, kMax = 1 << 20;  // a limit may have been lowered; a million calls take 0.1 s
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMax;
  return static_cast<unsigned>(std::clamp(limit.rlim_max, kMin, kMax));
}

/// True if the limit of threads counts those of one user namespace; older kernels count all processes of the user.
bool counts_threads_by_namespace() {
  utsname system{};
  int major = 0, minor = 0;
  return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(5, 14);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

sock_fprog program_of(const std::vector<sock_filter>& filter) {
  return {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
}

}  // namespace

SandboxProgram::SandboxProgram(std::vector<std::string> command, std::string home)
    : command_(std::move(command)), home_(std::move(home)) {
  // Linear algebra libraries get one thread, since each further thread uses address space that the limit counts.
  environment_ = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8",           "HOME=" + home_,    "TMPDIR=" + home_,
                  "OMP_NUM_THREADS=1",  "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"};
  arguments_ = pointers(command_);
  variables_ = pointers(environment_);
}

void SandboxProgram::describe(SandboxChild& child) const {
  child.program = arguments_.front();
  child.arguments = arguments_.data();
  child.environment = variables_.data();
  child.folder = home_.c_str();
}

SandboxFilters::SandboxFilters(const std::vector<sock_filter>& shared, bool shared_files)
    : shared_(shared), exec_key_(make_exec_key()), own_(make_process_filter(exec_key_, shared_files)) {}

void SandboxFilters::describe(SandboxChild& child) const {
  child.seccomp = program_of(shared_);
  child.process_seccomp = program_of(own_);
  child.exec_key = exec_key_.data();
}

SandboxNamespaces::SandboxNamespaces(const SandboxMeans& means, const std::filesystem::path& folder,
                                     const SandboxRequest& request,
                                     const std::vector<std::filesystem::path>& readable) {
  if (!means.namespaces) return;
  std::error_code ignored;
  const std::filesystem::path program = request.command.empty() ? "" : request.command.front();
  view_ = make_sandbox_view(folder, readable, std::filesystem::canonical(program, ignored));
  view_.folder_options =
      fmt::format("size={},nr_inodes={},mode=0700", SandboxBounds::kWrittenBytes, SandboxBounds::kEntries);
  if (means.nobody) view_.folder_options += fmt::format(",uid={0},gid={0}", kNobody);
  for (const SandboxView::Mount& mount : view_.mounts) {
    mounts_.push_back({mount.source.c_str(), mount.target.c_str(), mount.device});
  }
  flags_ = kNamespaces;
  if (geteuid() == 0) return;
  // Root needs no user namespace to make the others. Other users get one in which they are themselves.
  flags_ |= CLONE_NEWUSER;
  user_map_ = fmt::format("{0} {0} 1", geteuid());
  group_map_ = fmt::format("{0} {0} 1", getegid());
}

void SandboxNamespaces::describe(SandboxChild& child, const SandboxMeans& means) const {
  if (flags_ == 0) return;
  child.view = view_.root.c_str();
  child.mounts = mounts_.data();
  child.mount_count = mounts_.size();
  child.folder_mount = view_.folder.c_str();
  child.folder_options = view_.folder_options.c_str();
  const bool root = (flags_ & CLONE_NEWUSER) == 0;
  if (counts_threads_by_namespace() && (means.nobody || !root)) {  // root's are never limited
    child.max_threads = SandboxBounds::kThreads;
  }
  if (root) return;
  child.user_map = user_map_.c_str();
  child.group_map = group_map_.c_str();
}

// Files that are mapped are written without a call, and the folder's own file system has a size.
SandboxPlan::SandboxPlan(const SandboxMeans& means, const std::vector<sock_filter>& filter,
                         const SandboxRequest& request)
    : readable_(readable_paths(request)),
      limits_(limits_of(request)),
      filters_(filter, means.namespaces || folder_.counts_writes()),
      namespaces_(means, folder_.path(), request, readable_),
      program_(request.command, means.namespaces ? SandboxView::kFolder : folder_.path().string()) {
  if (means.nobody) become_nobody(means);
  if (means.landlock) rules_ = make_landlock_rules(readable_);
  filters_.describe(child_);
  namespaces_.describe(child_, means);
  program_.describe(child_);
  child_.landlock = rules_.rules.get();
  child_.landlock_folder = rules_.folder_rights;
  child_.limits = limits_.data();
  child_.limit_count = limits_.size();
  child_.max_descriptors = max_descriptors();
}

void SandboxPlan::become_nobody(const SandboxMeans& means) {
  child_.user = kNobody;
  child_.group = kNobody;
  if (means.namespaces) return;
  if (const int error = folder_.give_to(kNobody, kNobody)) {
    throw SandboxNotStarted(error, std::generic_category(),
                            fmt::format("sandbox: cannot give its folder to the user {}", kNobody));
  }
}

}  // namespace baton
