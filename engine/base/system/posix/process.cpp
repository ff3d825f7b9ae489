// SPDX-License-Identifier: Apache-2.0

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "engine/base/system/process.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace baton {

namespace fs = std::filesystem;
namespace {

/// While it lives, the signal is kept from this thread.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    was_pending_ = is_pending();
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    if (!was_pending_) take();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
  }

  void take() const {
#ifdef __APPLE__
    if (int signal = 0; is_pending()) sigwait(&pipe_, &signal);
#else
    const timespec now{0, 0};
    while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
#endif
  }

  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace

std::int64_t process_number() { return ::getpid(); }

fs::path own_program() {
#ifdef __APPLE__
  std::array<char, 4096> name{};
  auto size = static_cast<std::uint32_t>(name.size());
  if (_NSGetExecutablePath(name.data(), &size) != 0) return {};
  const fs::path link = name.data();
  std::error_code error;
  const fs::path program = fs::canonical(link, error);
#else
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
#endif
  return error ? fs::path() : program;
}

fs::path module_of(const void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  return fs::canonical(info.dli_fname, error);
}

bool is_executable(const fs::path& file) { return ::access(file.c_str(), X_OK) == 0; }

void block_pipe_signal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

void without_pipe_signal(const std::function<void()>& work) {
  const NoPipeSignal no_signal;
  work();
}

void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept { number.wait(old); }
void wake_all(std::atomic<std::int32_t>& number) noexcept { number.notify_all(); }

}  // namespace baton
