// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_rules.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>

namespace baton {
namespace {

struct FilterDeleter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

/// A filter that allows all calls except those that affect anything outside of the process.
class FilterBuilder {
 public:
  FilterBuilder() : filter_(seccomp_init(SCMP_ACT_ALLOW)) {
    if (!filter_) throw std::runtime_error("seccomp: cannot make a filter");
  }

  void deny(std::initializer_list<const char*> names, int error = EPERM) {
    for (const char* name : names) deny(name, error, {});
  }

  void deny(const char* name, int error, std::initializer_list<scmp_arg_cmp> conditions) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;  // the library does not know this newer call; see the range of numbers below
    const int problem = seccomp_rule_add_array(filter_.get(), SCMP_ACT_ERRNO(static_cast<unsigned>(error)), number,
                                               static_cast<unsigned>(conditions.size()), conditions.begin());
    if (problem < 0 && problem != -EDOM) {  // EDOM: the architecture has no such call
      throw std::runtime_error(std::string("seccomp: cannot add a rule for ") + name + ": error " +
                               std::to_string(-problem));
    }
  }

  /// Denies calls that are newer than this list. Their numbers are the same on all architectures.
  void deny_numbers(int begin, int end) {
    for (int number = begin; number < end; ++number) {
      if (seccomp_rule_add_array(filter_.get(), SCMP_ACT_ERRNO(ENOSYS), number, 0, nullptr) < 0) {
        throw std::runtime_error("seccomp: cannot add a rule for call " + std::to_string(number));
      }
    }
  }

  /// Before version 2.6, libseccomp writes programs to files only.
  std::vector<sock_filter> program() const {
    const UniqueFd file(memfd_create("filter", MFD_CLOEXEC));
    if (!file || seccomp_export_bpf(filter_.get(), file.get()) != 0) {
      throw std::runtime_error("seccomp: cannot make the program");
    }
    const off_t bytes = lseek(file.get(), 0, SEEK_END);
    std::vector<sock_filter> program(static_cast<std::size_t>(bytes) / sizeof(sock_filter));
    if (pread(file.get(), program.data(), static_cast<std::size_t>(bytes), 0) != bytes) {
      throw std::runtime_error("seccomp: cannot read the whole program");
    }
    return program;
  }

 private:
  std::unique_ptr<void, FilterDeleter> filter_;
};

/// Compares the argument's bits under the mask.
scmp_arg_cmp bits(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

scmp_arg_cmp not_zero(unsigned argument) { return {argument, SCMP_CMP_NE, 0, 0}; }

constexpr scmp_datum_t kLow32 = 0xffffffff;  // the kernel reads only these bits of such arguments

}  // namespace

std::vector<sock_filter> make_seccomp_filter() {
  // A kernel with filters fails because of the null program.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) != -1 || errno != EFAULT) return {};
  FilterBuilder filter;

  // Processes: only threads are allowed. A filter cannot read the flags of clone3; the C library falls back to clone.
  filter.deny({"fork", "vfork"});
  filter.deny("clone", EPERM, {bits(0, CLONE_THREAD, 0)});
  filter.deny({"clone3"}, ENOSYS);

  // The network. io_uring could make sockets without a socket call.
  filter.deny({"socket"}, EACCES);
  filter.deny({"io_uring_setup", "io_uring_enter", "io_uring_register"}, ENOSYS);

  // Processes of the same user: signals (also through a file's owner), memory, limits and priorities.
  filter.deny({"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "pidfd_open",
               "pidfd_getfd"});
  for (const int command : {F_SETOWN, 15 /* F_SETOWN_EX */, 10 /* F_SETSIG */}) {
    for (const char* call : {"fcntl", "fcntl64"}) {
      filter.deny(call, EPERM, {bits(1, kLow32, static_cast<scmp_datum_t>(command))});
    }
  }
  filter.deny({"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp",
               "move_pages", "migrate_pages", "setpriority", "ioprio_set"});
  for (const char* call : {"prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"}) {
    filter.deny(call, EPERM, {not_zero(0)});
  }

  // Objects that outlive the process, and memory that its limit does not count.
  filter.deny({"shmget", "semget", "msgget", "mq_open", "memfd_create", "memfd_secret"});

  // Access to files that Landlock does not cover.
  filter.deny({"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "truncate",
               "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
               "open_by_handle_at"});
  filter.deny("ioctl", EPERM, {bits(1, kLow32, TIOCSTI)});

  // The system.
  filter.deny({"mount",           "umount",        "umount2",       "pivot_root",      "chroot",
               "setns",           "unshare",       "mount_setattr", "fsopen",          "fsconfig",
               "fsmount",         "fspick",        "open_tree",     "move_mount",      "bpf",
               "perf_event_open", "keyctl",        "add_key",       "request_key",     "init_module",
               "finit_module",    "delete_module", "kexec_load",    "kexec_file_load", "reboot",
               "swapon",          "swapoff",       "acct",          "quotactl",        "quotactl_fd",
               "sethostname",     "setdomainname", "settimeofday",  "clock_settime",   "clock_adjtime",
               "adjtimex",        "iopl",          "ioperm",        "syslog",          "vhangup",
               "userfaultfd",     "fanotify_init"});
  filter.deny_numbers(451, 512);
  return filter.program();
}

int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

UniqueFd make_landlock_rules(const std::vector<std::filesystem::path>& readable,
                             const std::filesystem::path& writable) {
  const int version = landlock_version();
  if (version == 0) return {};
  constexpr std::uint64_t kTruncate = 1u << 14;  // since version 3; newer than some headers
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = (1u << 13) - 1;  // all rights of version 1
  if (version >= 3) attributes.handled_access_fs |= kTruncate;
  UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
  if (!rules) throw std::runtime_error("landlock: cannot make a ruleset");

  constexpr std::uint64_t kRead =
      LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
  const auto allow = [&](const std::filesystem::path& path, std::uint64_t access) {
    const UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!place) return;
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) access &= ~std::uint64_t{LANDLOCK_ACCESS_FS_READ_DIR};
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access;
    rule.parent_fd = place.get();
    if (syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
      throw std::runtime_error("landlock: cannot add a rule for " + path.string());
    }
  };
  for (const std::filesystem::path& path : readable) allow(path, kRead);
  allow("/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
  allow(writable, attributes.handled_access_fs);
  return rules;
}

}  // namespace baton
