// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/interrupts.h"

#include <signal.h>

namespace baton {
namespace {

/// Those that are caught; asks how SIGHUP is handled, so the same from start to end.
sigset_t caught_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hang_up {};
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)  // nohup ignores it
    sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

void catch_interrupts() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // Every later thread inherits that they are blocked: a signal interrupts no system call, and the thread that waits
  // for it may do anything, unlike a handler.
  const sigset_t signals = caught_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGINT, SIG_DFL);  // a shell without job control ignores it for what runs in the background
}

Interrupt next_interrupt() {
  const sigset_t signals = caught_signals();
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  return number == SIGINT ? Interrupt::ctrl_c : Interrupt::end;
}

void leave_interrupts() {
  const sigset_t signals = caught_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace baton
