// SPDX-License-Identifier: Apache-2.0
// The child runs in the memory of a host with other threads, so it makes plain system calls only: no code may allocate,
// lock, or change a sanitiser's bookkeeping of the host.
#include "agents/tools/sandbox/process.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "agents/tools/sandbox/folder.h"
#include "engine/base/clock.h"

#if defined(__clang__)
#define BATON_PLAIN __attribute__((no_sanitize("address", "thread", "undefined"), noinline))
#else
#define BATON_PLAIN __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined, noinline))
#endif

namespace baton {
namespace {

/// The kernel's own form of a signal action (not the C library's).
struct KernelSigaction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

/// Resets all signals: handlers of the host must not run in the child, and ignored signals would stay ignored.
BATON_PLAIN void default_signals() {
  const KernelSigaction action{SIG_DFL, 0, nullptr, 0};
  for (int signal = 1; signal <= 64; ++signal) syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof(action.mask));
}

BATON_PLAIN bool write_file(const char* path, const char* text) {
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) return false;
  long bytes = 0;
  while (text[bytes] != 0) ++bytes;
  const bool written = syscall(SYS_write, file, text, bytes) == bytes;
  const int error = errno;
  syscall(SYS_close, file);
  errno = error;
  return written;
}

BATON_PLAIN const char* map_user(const SandboxChild& child) {
  if (!write_file("/proc/self/setgroups", "deny")) return "groups of its user namespace";
  if (!write_file("/proc/self/uid_map", child.user_map)) return "user of its user namespace";
  if (!write_file("/proc/self/gid_map", child.group_map)) return "group of its user namespace";
  return nullptr;
}

/// Adds attributes to a mount, and to those below it with AT_RECURSIVE.
BATON_PLAIN bool restrict_mount(const char* path, unsigned flags, std::uint64_t attributes) {
  mount_attr change{};
  change.attr_set = attributes;
  return syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &change, sizeof(change)) == 0;
}

/// Replaces all that the process sees by the view.
BATON_PLAIN const char* enter_view(const SandboxChild& child) {
  constexpr unsigned kRecursive = 0x8000;  // AT_RECURSIVE
  const char* root = child.view;
  if (syscall(SYS_mount, nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "private mounts";
  if (syscall(SYS_mount, root, root, nullptr, MS_BIND, nullptr) != 0) return "mount of its root";
  for (std::size_t i = 0; i < child.mount_count; ++i) {
    const SandboxChild::Mount& mount = child.mounts[i];
    if (syscall(SYS_mount, mount.source, mount.target, nullptr, MS_BIND | MS_REC, nullptr) != 0) return mount.source;
    const std::uint64_t devices = mount.device ? 0 : MOUNT_ATTR_NODEV;
    if (!restrict_mount(mount.target, kRecursive, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | devices)) {
      return "read-only mounts";
    }
  }
  if (syscall(SYS_mount, "tmpfs", child.folder_mount, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              child.folder_options) != 0) {
    return "mount of its folder";
  }
  if (!restrict_mount(root, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)) return "read-only root";
  if (syscall(SYS_chdir, root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) return "change of its root";
  constexpr int kDetach = 2;  // MNT_DETACH
  if (syscall(SYS_umount2, ".", kDetach) != 0) return "removal of the host's root";
  return nullptr;
}

/// Drops all capabilities, so that root has only the rights of its own files. Other users have none, and the failure of
/// this call is harmless.
BATON_PLAIN void drop_capabilities() {
  for (int capability = 0; capability < 64; ++capability) syscall(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
  syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  syscall(SYS_capset, &header, &none);
}

BATON_PLAIN const char* become(uid_t user, gid_t group) {
  if (syscall(SYS_setgroups, 0, nullptr) != 0) return "groups";
  if (syscall(SYS_setresgid, group, group, group) != 0) return "group";
  if (syscall(SYS_setresuid, user, user, user) != 0) return "user";
  return nullptr;
}

BATON_PLAIN bool set_limit(int resource, rlim_t soft, rlim_t hard) {
  const std::uint64_t limit[2] = {soft, hard};
  return syscall(SYS_prlimit64, 0, resource, limit, nullptr) == 0;
}

BATON_PLAIN bool restrict_files(const SandboxChild& child) {
  landlock_path_beneath_attr rule{};
  rule.allowed_access = child.landlock_folder;
  rule.parent_fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, ".", O_PATH | O_CLOEXEC, 0));
  return rule.parent_fd >= 0 &&
         syscall(SYS_landlock_add_rule, child.landlock, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 &&
         syscall(SYS_landlock_restrict_self, child.landlock, 0) == 0;
}

/// Ends with the host. The host may have ended before this: then nobody reads the output.
BATON_PLAIN bool end_with_host() {
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return false;
  pollfd output{1, POLLOUT, 0};
  std::uint64_t now[2] = {0, 0};
  return syscall(SYS_ppoll, &output, 1, now, nullptr, 8) >= 0 && (output.revents & POLLERR) == 0;
}

BATON_PLAIN const char* confine(SandboxChild& child) {
  default_signals();
  syscall(SYS_umask, 077);
  if (syscall(SYS_setsid) < 0) return "setsid";
  if (syscall(SYS_dup3, child.input, 0, 0) < 0) return "standard input";
  if (syscall(SYS_dup3, child.output, 1, 0) < 0 || syscall(SYS_dup3, child.output, 2, 0) < 0) return "standard output";
  const char* problem = child.user_map != nullptr ? map_user(child) : nullptr;
  if (problem == nullptr && child.view != nullptr) problem = enter_view(child);
  if (problem != nullptr) return problem;
  if (syscall(SYS_chdir, child.folder) != 0) return "its folder";
  if (child.user != 0) {
    problem = become(child.user, child.group);
    if (problem != nullptr) return problem;
  }
  if (child.max_threads != 0) {
    // As another user, an empty user namespace serves to count the threads of this process alone.
    const bool own_namespace = child.user_map != nullptr || syscall(SYS_unshare, CLONE_NEWUSER) == 0;
    child.counts_threads = own_namespace && set_limit(RLIMIT_NPROC, child.max_threads, child.max_threads);
  }
  for (std::size_t i = 0; i < child.limit_count; ++i) {
    const SandboxChild::Limit& limit = child.limits[i];
    if (!set_limit(limit.resource, limit.value.rlim_cur, limit.value.rlim_max)) return "limits";
  }
  drop_capabilities();
  if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no new privileges";
  if (child.landlock >= 0 && !restrict_files(child)) return "landlock";
  // The host may have files open that are not marked close-on-exec.
  if (syscall(SYS_close_range, 3, ~0u, 0) != 0) {
    for (unsigned fd = 3; fd < child.max_descriptors; ++fd) syscall(SYS_close, fd);
  }
  if (!end_with_host()) return "end of the host";  // after the last change of its user, which would undo it
  const std::uint64_t no_signals = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof(no_signals));
  for (const sock_fprog* filter : {&child.process_seccomp, &child.seccomp}) {
    if (syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0) != 0) return "seccomp";
  }
  return nullptr;
}

}  // namespace

BATON_PLAIN int sandbox_child(void* plan) {
  SandboxChild& child = *static_cast<SandboxChild*>(plan);
  child.failed = confine(child);
  if (child.failed == nullptr && child.program == nullptr) syscall(SYS_exit_group, 0);
  if (child.failed == nullptr) {
    const std::uint64_t* key = child.exec_key;
    syscall(SYS_execve, child.program, child.arguments, child.environment, key[0], key[1], key[2]);
    child.failed = child.program;
  }
  child.error = errno;
  syscall(SYS_exit_group, 127);
  return 127;
}

}  // namespace baton

// ThreadSanitizer's clone() treats every child as a copy of the process with its own bookkeeping; this child shares the
// host's memory. The C library has the plain call under a second name.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BATON_THREAD_SANITIZER
#endif
#endif
#if defined(BATON_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
extern "C" int __clone(int (*)(void*), void*, int, void*, ...) noexcept;
#define clone __clone
#endif

namespace baton {
namespace {

using End = SandboxResult::End;

constexpr std::size_t kChildStackBytes = 64 << 10;
constexpr std::size_t kFloodFactor = 64;  // a process is killed when it writes this many times output_bytes
constexpr int kSupervisedEveryMs = 20;
constexpr int kMaxEndingMs = 2000;  // for a process that may not be killed

[[noreturn]] void process_failed(const char* what, int error) {
  throw std::system_error(error, std::generic_category(), std::string("sandbox: ") + what);
}

/// Reads all available output without waiting. Returns false at the end of the stream.
bool drain(int fd, KeptOutput& output) {
  std::array<char, 16384> buffer;
  while (!output.flooded()) {
    const ssize_t bytes = read(fd, buffer.data(), buffer.size());
    if (bytes > 0) {
      output.add(buffer.data(), static_cast<std::size_t>(bytes));
    } else {
      return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    }
  }
  return true;
}

bool has_ended(int handle, int wait_ms) {
  pollfd ended{handle, POLLIN, 0};
  return poll(&ended, 1, wait_ms) > 0;
}

}  // namespace

KeptOutput::KeptOutput(std::size_t limit) : half_(std::max<std::size_t>(limit / 2, 1)) {}

void KeptOutput::add(const char* data, std::size_t bytes) {
  total_ += bytes;
  const std::size_t to_head = std::min(bytes, half_ - head_.size());
  head_.append(data, to_head);
  tail_.append(data + to_head, bytes - to_head);
  if (tail_.size() > 4 * half_) tail_.erase(0, tail_.size() - half_);
}

bool KeptOutput::flooded() const { return total_ > kFloodFactor * 2 * half_; }

std::string KeptOutput::text() && {
  if (tail_.size() > half_) tail_.erase(0, tail_.size() - half_);
  const std::size_t missing = total_ - head_.size() - tail_.size();
  if (missing > 0) head_ += fmt::format("\n[... {} bytes left out ...]\n", missing);
  return std::move(head_) + tail_;
}

SandboxProcess::SandboxProcess(SandboxChild& child, int namespaces) {
  std::vector<std::byte> stack(kChildStackBytes);
  void* top = stack.data() + stack.size();
  top = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15});
  std::optional<ClosedMemory> closed;
  if (child.user != 0) closed.emplace();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int handle = -1;
  id_ = clone(sandbox_child, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD | namespaces, &child, &handle);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (id_ < 0) throw SandboxNotStarted(error, std::generic_category(), "sandbox: cannot start a process");
  handle_ = UniqueFd(handle);
  if (child.failed != nullptr) {
    siginfo_t status{};
    end(status);
    std::string what = std::string("sandbox: ") + child.failed;
    if (child.user != 0 && child.error == EACCES) what += fmt::format(", as the user {} for root", child.user);
    throw SandboxNotStarted(child.error, std::generic_category(), what);
  }
}

SandboxProcess::~SandboxProcess() {
  siginfo_t status{};
  if (handle_) end(status);
}

int SandboxProcess::end(siginfo_t& status) {
  const UniqueFd handle = std::move(handle_);
  const bool killed = syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0) == 0 || errno == ESRCH;
  const int not_killed = killed ? 0 : errno;
  for (const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(kMaxEndingMs);
       not_killed != 0 && !has_ended(handle.get(), 10);) {
    if (Clock::now() >= deadline) return not_killed;
  }
  int result = -1;
  do {
    result = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle.get()), &status, WEXITED);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

End SandboxProcess::watch(int stream, KeptOutput& output, const SandboxRequest& request,
                          const std::function<bool()>& exceeds) const {
  const Clock::time_point deadline = Clock::now() + bounded_wait(request.timeout);
  const UniqueFd stopped(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopped) process_failed("cannot make an event", errno);
  const std::stop_callback on_stop(request.stop, [&] { eventfd_write(stopped.get(), 1); });
  pollfd watched[] = {{handle_.get(), POLLIN, 0}, {stopped.get(), POLLIN, 0}, {stream, POLLIN, 0}};
  const std::int64_t max_wait = exceeds ? kSupervisedEveryMs : 60000;
  if (exceeds_now(exceeds)) return End::exceeded;
  Clock::time_point supervised = Clock::now();
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return End::timed_out;
    for (pollfd& one : watched) one.revents = 0;
    // A signal of the host's may interrupt every wait.
    if (poll(watched, 3, static_cast<int>(std::min<std::int64_t>(left, max_wait))) < 0 && errno != EINTR) {
      process_failed("cannot wait for the process", errno);
    }
    if (watched[1].revents != 0) return End::stopped;
    if (watched[2].revents != 0 && !drain(stream, output)) watched[2].fd = -1;
    if (output.flooded()) return End::flooded;
    if (watched[0].revents != 0) {
      drain(stream, output);
      return End::exited;
    }
    if (exceeds && Clock::now() - supervised >= std::chrono::milliseconds(kSupervisedEveryMs)) {
      if (exceeds_now(exceeds)) return End::exceeded;
      supervised = Clock::now();
    }
  }
}

bool SandboxProcess::exceeds_now(const std::function<bool()>& exceeds) const {
  try {
    return exceeds && exceeds();
  } catch (const std::system_error&) {
    // A process that is about to end loses its counters before it has ended. One whose first thread has ended does not
    // show them either, and goes on: whether it ended by itself is known when it has been killed.
    if (has_ended(handle_.get(), kSupervisedEveryMs)) return false;
    syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0);
    siginfo_t status{};
    const bool known =
        has_ended(handle_.get(), kMaxEndingMs) &&
        waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle_.get()), &status, WEXITED | WNOWAIT) == 0;
    if (!known || status.si_status == SIGKILL) throw;
    return false;
  }
}

}  // namespace baton
