// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/interrupt.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "sdk/cli/console/exit_code.h"

namespace baton::cli {
namespace {

struct Watch {
  std::stop_source stop;
  std::atomic<bool> obeyed = false;  // something asks for the token
  std::mutex mutex;
  std::vector<LastWords*> words;
  std::stop_source* one = nullptr;  // that of StopOne
  std::mutex writing;
};

Watch& watch() {
  static Watch& state = *new Watch;  // never destroyed: its thread lives until the process ends
  return state;
}

/// True when a StopOne takes the signal.
bool stops_one(int signal) {
  const std::lock_guard lock(watch().mutex);
  return signal == SIGINT && watch().one != nullptr && watch().one->request_stop();
}

/// The first signal requests a stop, the second one ends the program; where nothing asks for stops, the first one does.
void wait_for_signals(sigset_t signals) {
  Watch& state = watch();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0 || stops_one(signal)) {
  }
  state.stop.request_stop();
  while (state.obeyed && sigwait(&signals, &signal) != 0) {
  }
  // A reader that does not read must not keep the program alive. (try_lock_for is unknown to the thread sanitizer.)
  for (int tries = 0; tries < 200 && !state.writing.try_lock(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::lock_guard lock(state.mutex);
  for (const auto* words : state.words) words->speak();
  std::_Exit(kInterrupted);  // not _exit, before which ThreadSanitizer flushes stdout and so waits for its reader
}

}  // namespace

void watch_interrupts() {
  // A closed pipe and a file beyond the limit of the system are failed writes, which are reported.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hang_up {};
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)  // nohup ignores it
    sigaddset(&signals, SIGHUP);
  // Every later thread inherits that they are blocked: a signal interrupts no system call, and the thread that waits
  // for it may do anything, unlike a handler.
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  std::signal(SIGINT, SIG_DFL);  // a shell without job control ignores it for what runs in the background
  try {
    std::thread(wait_for_signals, signals).detach();
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);  // without the thread a signal ends the program as by default
  }
}

std::stop_token interrupted() {
  watch().obeyed = true;
  return watch().stop.get_token();
}

StopOne::StopOne() {
  const std::lock_guard lock(watch().mutex);
  watch().one = &stop_;
}
StopOne::~StopOne() {
  const std::lock_guard lock(watch().mutex);
  watch().one = nullptr;
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
