// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "sdk/cli/console/exit_code.h"

namespace baton::cli {
namespace {

// A signal handler can reach nothing but what is global; it writes a byte for the thread that does the rest.
int signal_pipe[2] = {-1, -1};

struct Watch {
  std::stop_source stop;
  std::atomic<bool> obeyed = false;  // something asks for the token
  std::mutex mutex;
  std::vector<LastWords*> words;
  std::mutex writing;
};

Watch& watch() {
  static Watch& state = *new Watch;  // never destroyed: its thread lives until the process ends
  return state;
}

void on_signal(int) {
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(signal_pipe[1], "!", 1);
  errno = error;
}

/// The first signal requests a stop, the second one ends the program; where nothing asks for stops, the first one does.
void wait_for_signals() {
  Watch& state = watch();
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) != 1) {
  }
  state.stop.request_stop();
  while (state.obeyed && ::read(signal_pipe[0], &byte, 1) != 1) {
  }
  // A reader that does not read must not keep the program alive. (try_lock_for is unknown to the thread sanitizer.)
  for (int tries = 0; tries < 200 && !state.writing.try_lock(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::lock_guard lock(state.mutex);
  for (const auto* words : state.words) words->speak();
  ::_exit(kInterrupted);
}

}  // namespace

void watch_interrupts() {
  // A closed pipe and a file beyond the limit of the system are failed writes, which are reported.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  if (::pipe2(signal_pipe, O_CLOEXEC) != 0) return;
  try {
    std::thread(wait_for_signals).detach();
  } catch (const std::system_error&) {
    return;  // without the thread a signal ends the program as by default
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hang_up {};
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)  // nohup ignores it
    sigaction(SIGHUP, &action, nullptr);
}

std::stop_token interrupted() {
  watch().obeyed = true;
  return watch().stop.get_token();
}

Whole::Whole() { watch().writing.lock(); }
Whole::~Whole() { watch().writing.unlock(); }

LastWords::LastWords(std::function<void()> words) : words_(std::move(words)) {
  const std::lock_guard lock(watch().mutex);
  watch().words.push_back(this);
}

LastWords::~LastWords() {
  const std::lock_guard lock(watch().mutex);
  auto& all = watch().words;
  all.erase(std::find(all.begin(), all.end(), this));
}

}  // namespace baton::cli
