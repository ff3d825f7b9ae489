// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/interrupts.h"

#include <windows.h>

#include <condition_variable>
#include <deque>
#include <mutex>

namespace baton {
namespace {

struct CaughtInterrupts {
  std::mutex mutex;
  std::condition_variable some;
  std::deque<Interrupt> waiting;
};

CaughtInterrupts& caught() {
  static CaughtInterrupts& all = *new CaughtInterrupts;  // never destroyed: threads of the system come at any time
  return all;
}

/// On a thread that the system makes for it. Once it returns from the loss of the terminal, the program is ended.
BOOL WINAPI catch_one(DWORD event) {
  {
    const std::lock_guard lock(caught().mutex);
    caught().waiting.push_back(event == CTRL_C_EVENT ? Interrupt::ctrl_c : Interrupt::end);
  }
  caught().some.notify_one();
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
  return TRUE;
}

}  // namespace

void catch_interrupts() {
  SetConsoleCtrlHandler(nullptr, FALSE);  // who started the program may have had Ctrl-C ignored
  SetConsoleCtrlHandler(catch_one, TRUE);
}

Interrupt next_interrupt() {
  std::unique_lock lock(caught().mutex);
  caught().some.wait(lock, [] { return !caught().waiting.empty(); });
  const Interrupt next = caught().waiting.front();
  caught().waiting.pop_front();
  return next;
}

void leave_interrupts() { SetConsoleCtrlHandler(catch_one, FALSE); }

}  // namespace baton
