// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/terminal.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

std::atomic<int> stdout_error = 0;  // errno of the first write that failed

/// To stdout as it is.
void write_result(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !written) {
    int none = 0;
    stdout_error.compare_exchange_strong(none, errno);
  }
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool dumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || *term == '\0' || std::strcmp(term, "dumb") == 0;
}

std::string with_codes(Style style, std::string_view text) {
  if (style == Style::plain || text.empty()) return std::string(text);
  static const char* const kCodes[] = {"0", "1", "2", "31", "32", "33", "34", "36"};
  return std::string("\x1b[") + kCodes[static_cast<int>(style)] + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace

bool stdout_is_terminal() { return is_terminal(StandardStream::output); }
bool stderr_is_terminal() { return is_terminal(StandardStream::error); }
bool can_redraw() { return stderr_is_terminal() && !dumb(); }
bool use_colour() { return can_redraw() && !is_set("NO_COLOR"); }

bool terminal_is_utf8() {
  static const bool utf8 = [] {
    if (!is_set("LC_ALL") && !is_set("LC_CTYPE") && !is_set("LANG")) return true;
    return locale_is_utf8();
  }();
  return utf8;
}

std::string styled(Style style, std::string_view text) {
  return use_colour() ? with_codes(style, text) : std::string(text);
}

std::string coloured(Style style, std::string_view text) {
  if (!stdout_is_terminal()) return std::string(text);
  const std::string shown = printable(text, Lines::keep, !terminal_is_utf8());
  return dumb() || is_set("NO_COLOR") ? shown : with_codes(style, shown);
}

std::string warning_line(std::string_view message) {
  return styled(Style::yellow, "warning: ") + printable(message, Lines::fold) + "\n";
}

void note(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void result(std::string_view text) {
  const Whole whole;
  if (stdout_is_terminal())
    write_result(printable(text, Lines::keep, !terminal_is_utf8()));
  else
    write_result(text);
}

void coloured_result(std::string_view text) {
  const Whole whole;
  write_result(text);
}

void check_stdout() {
  if (std::ferror(stdout) == 0) return;
  const int error = stdout_error;
  if (error == EPIPE) throw Failure(kRunFailed, "");  // whoever read it wanted no more
  throw Failure(kRunFailed, std::string("could not write to standard output") +
                                (error != 0 ? std::string(": ") + std::strerror(error) : ""));
}

}  // namespace baton::cli
