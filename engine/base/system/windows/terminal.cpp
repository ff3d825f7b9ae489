// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <condition_variable>
#include <deque>
#include <mutex>
// after it

#include "engine/base/system/terminal.h"

namespace baton {
namespace {

HANDLE handle_of(StandardStream stream) {
  return GetStdHandle(stream == StandardStream::input    ? STD_INPUT_HANDLE
                      : stream == StandardStream::output ? STD_OUTPUT_HANDLE
                                                         : STD_ERROR_HANDLE);
}

}  // namespace

bool is_terminal(StandardStream stream) {
  DWORD mode = 0;
  return GetConsoleMode(handle_of(stream), &mode) != 0;
}

TerminalSize terminal_size() {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (GetConsoleScreenBufferInfo(handle_of(StandardStream::error), &info) == 0) return {};
  return {info.srWindow.Right - info.srWindow.Left + 1, info.srWindow.Bottom - info.srWindow.Top + 1};
}

bool locale_is_utf8() { return GetConsoleOutputCP() == CP_UTF8; }

/// A console is readable for keys and windows' events too, so that reading a line may wait. All else never waits long.
bool wait_for_input(std::chrono::milliseconds time) {
  if (!is_terminal(StandardStream::input)) return true;
  return WaitForSingleObject(handle_of(StandardStream::input), static_cast<DWORD>(time.count())) == WAIT_OBJECT_0;
}

/// Also: what is printed is UTF-8, without other line ends, and with escape sequences that a console obeys.
void open_standard_files() {
  for (int file = 0; file <= 2; ++file) {
    if (_get_osfhandle(file) < 0 && _open("NUL", file == 1 ? _O_RDONLY : _O_RDWR) != file) return;
  }
  SetConsoleOutputCP(CP_UTF8);
  SetConsoleCP(CP_UTF8);
  for (const StandardStream stream : {StandardStream::output, StandardStream::error}) {
    DWORD mode = 0;
    if (GetConsoleMode(handle_of(stream), &mode) != 0)
      SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
  _setmode(1, _O_BINARY);
  _setmode(2, _O_BINARY);
}

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
