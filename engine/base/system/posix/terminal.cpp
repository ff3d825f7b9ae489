// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstring>

#include "engine/base/system/terminal.h"

namespace baton {

bool is_terminal(StandardStream stream) {
  return ::isatty(stream == StandardStream::input    ? STDIN_FILENO
                  : stream == StandardStream::output ? STDOUT_FILENO
                                                     : STDERR_FILENO) == 1;
}

TerminalSize terminal_size() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
    return {size.ws_col, size.ws_row};
  return {};
}

bool locale_is_utf8() {
  return std::setlocale(LC_CTYPE, "") == nullptr || std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
}

bool wait_for_input(std::chrono::milliseconds time) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, static_cast<int>(time.count())) > 0;
}

void open_standard_files() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (::fcntl(file, F_GETFD) != -1 || errno != EBADF) continue;
    const int how = file == STDOUT_FILENO ? O_RDONLY : O_RDWR;  // a result that nobody gets is an error
    if (::open("/dev/null", how) != file) return;               // the lowest number that is free: this one
  }
}

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
