// SPDX-License-Identifier: Apache-2.0
// The child runs in the memory of a host with other threads, so it makes plain system calls only: no code may allocate,
// lock, or change a sanitiser's bookkeeping of the host.
#include "agents/sandbox_child.h"

#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

/// Drops all capabilities, so that root has only the rights of its own files. Other users have none, and the failure of
/// this call is harmless.
BATON_PLAIN void drop_capabilities() {
  for (int capability = 0; capability < 64; ++capability) syscall(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
  syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  syscall(SYS_capset, &header, &none);
}

BATON_PLAIN const char* confine(const SandboxChild& child) {
  default_signals();
  syscall(SYS_umask, 077);
  if (syscall(SYS_setsid) < 0) return "setsid";
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return "parent death signal";
  if (syscall(SYS_dup3, child.input, 0, 0) < 0) return "standard input";
  if (syscall(SYS_dup3, child.output, 1, 0) < 0 || syscall(SYS_dup3, child.output, 2, 0) < 0) return "standard output";
  if (syscall(SYS_chdir, child.folder) != 0) return "its folder";
  for (std::size_t i = 0; i < child.limit_count; ++i) {
    const rlimit value = child.limits[i].value;
    const std::uint64_t limit[2] = {value.rlim_cur, value.rlim_max};
    if (syscall(SYS_prlimit64, 0, child.limits[i].resource, limit, nullptr) != 0) return "limits";
  }
  drop_capabilities();
  if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no new privileges";
  if (child.landlock >= 0 && syscall(SYS_landlock_restrict_self, child.landlock, 0) != 0) return "landlock";
  // The host may have files open that are not marked close-on-exec.
  if (syscall(SYS_close_range, 3, ~0u, 0) != 0) {
    for (int fd = 3; fd < 1 << 16; ++fd) syscall(SYS_close, fd);
  }
  const std::uint64_t no_signals = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof(no_signals));
  if (syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &child.seccomp, 0, 0) != 0) return "seccomp";
  return nullptr;
}

}  // namespace

BATON_PLAIN int sandbox_child(void* plan) {
  SandboxChild& child = *static_cast<SandboxChild*>(plan);
  child.failed = confine(child);
  if (child.failed == nullptr) {
    syscall(SYS_execve, child.program, child.arguments, child.environment);
    child.failed = child.program;
  }
  child.error = errno;
  syscall(SYS_exit_group, 127);
  return 127;
}

}  // namespace baton
