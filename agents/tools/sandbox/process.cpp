// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/sandbox/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "agents/tools/sandbox/folder.h"
#include "engine/base/clock.h"

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
