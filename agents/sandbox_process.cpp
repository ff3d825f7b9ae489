// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <vector>

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
constexpr std::int64_t kSupervisedEveryMs = 20;

[[noreturn]] void fail(const char* what, int error) {
  throw std::system_error(error, std::generic_category(), std::string("sandbox: ") + what);
}

/// A child that becomes another user makes the host's memory, which it shares until it executes its program, closed to
/// debuggers and core files, so that this user cannot reach into it. The host's own setting returns when the object is
/// destroyed; until then other threads wait, which would otherwise restore it too early.
class ClosedMemory {
 public:
  ClosedMemory() : lock_(mutex()), before_(prctl(PR_GET_DUMPABLE)) {}
  ~ClosedMemory() {
    if (before_ == 1) prctl(PR_SET_DUMPABLE, 1);
  }
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;  // the setting is one of the whole process
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  int before_;
};

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
  std::unique_ptr<ClosedMemory> closed;
  if (child.user != 0) closed = std::make_unique<ClosedMemory>();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int handle = -1;
  pid_ = clone(sandbox_child, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD | namespaces, &child, &handle);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) throw SandboxNotStarted(error, std::generic_category(), "sandbox: cannot start a process");
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

bool SandboxProcess::end(siginfo_t& status) {
  constexpr int kMaxWaitMs = 2000;  // for a process that a root without the right to signal others cannot kill
  pollfd ended{handle_.get(), POLLIN, 0};
  const bool killed = syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0) == 0 || errno == ESRCH;
  if (!killed && poll(&ended, 1, kMaxWaitMs) <= 0) {
    handle_.reset();
    return false;
  }
  int result = -1;
  do {
    result = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle_.get()), &status, WEXITED);
  } while (result != 0 && errno == EINTR);
  handle_.reset();
  return result == 0;
}

End SandboxProcess::watch(int stream, KeptOutput& output, const SandboxRequest& request,
                          const std::function<bool()>& exceeds) const {
  const Clock::time_point deadline = Clock::now() + std::min(request.timeout, kMaxWait);
  const UniqueFd stopped(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopped) fail("cannot make an event", errno);
  const std::stop_callback on_stop(request.stop, [&] { eventfd_write(stopped.get(), 1); });
  pollfd watched[] = {{handle_.get(), POLLIN, 0}, {stopped.get(), POLLIN, 0}, {stream, POLLIN, 0}};
  const std::int64_t max_wait = exceeds ? kSupervisedEveryMs : 60000;
  Clock::time_point supervised = Clock::now();
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return End::timed_out;
    if (poll(watched, 3, static_cast<int>(std::min<std::int64_t>(left, max_wait))) < 0) {
      if (errno == EINTR) continue;
      fail("poll", errno);
    }
    if (watched[1].revents != 0) return End::stopped;
    if (watched[2].revents != 0 && !drain(stream, output)) watched[2].fd = -1;
    if (output.flooded()) return End::flooded;
    if (watched[0].revents != 0) {
      drain(stream, output);
      return End::exited;
    }
    if (exceeds && Clock::now() - supervised >= std::chrono::milliseconds(kSupervisedEveryMs)) {
      if (exceeds()) return End::exceeded;
      supervised = Clock::now();
    }
  }
}

int SandboxProcess::threads() const {
  std::ifstream file(fmt::format("/proc/{}/status", pid_));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Threads:")) return std::atoi(line.c_str() + 8);
  }
  return 0;
}

std::uint64_t SandboxProcess::written_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/io", pid_));
  std::uint64_t calls = 0, disk = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("wchar: ")) calls = std::strtoull(line.c_str() + 7, nullptr, 10);
    if (line.starts_with("write_bytes: ")) disk = std::strtoull(line.c_str() + 13, nullptr, 10);
  }
  return std::max(calls, disk);
}

}  // namespace baton
