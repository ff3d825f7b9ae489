// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/terminal.h"

#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstring>

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

}  // namespace baton
