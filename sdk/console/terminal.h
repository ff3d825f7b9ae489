// SPDX-License-Identifier: Apache-2.0
// How the program speaks: its exit codes, the two output streams, progress, the mistakes of a workflow file; what
// Ctrl-C ends, and files that appear whole or not at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <baton/errors.h>

#include "engine/base/system/terminal.h"

namespace baton::cli {

/// Catches interrupts from now on (engine/base/system/interrupts.h). Once, from main.
void watch_interrupts();

/// Requested by the first signal, which ends the program if this was never called. Any thread.
std::stop_token interrupted();

/// While an object exists, the first Ctrl-C requests a stop of its token only, and the program goes on.
class StopOne {
 public:
  StopOne();
  ~StopOne();
  StopOne(const StopOne&) = delete;
  StopOne& operator=(const StopOne&) = delete;
  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
};

/// While an object exists, a second signal ends the program only after up to two seconds, so that output in progress is
/// completed.
class Whole {
 public:
  Whole();
  ~Whole();
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
};

/// A function that is called before the program ends at once, while the object exists: it restores the terminal or
/// removes partly written files.
class LastWords {
 public:
  explicit LastWords(std::function<void()> words);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  void speak() const { words_(); }

 private:
  std::function<void()> words_;
};

// Files and folders that appear whole or not at all, also when the program is interrupted.

/// Calls `write` with another name in the folder of `path`, for it to write there and to rename to `path`; `remove`,
/// with the same name, removes what lies there. It is called first, after an exception of `write`, and when the program
/// is interrupted. Of these calls no two overlap.
void write_aside(const std::filesystem::path& path,
                 const std::function<void(const std::filesystem::path& aside)>& write,
                 const std::function<void(const std::filesystem::path& aside)>& remove);

/// Makes a file of `bytes`, in pieces if need be. Returns 0, or what errno says.
int write_new_file(const std::filesystem::path& path, std::string_view bytes);

/// In place of a file of the same name. Throws Failure with kRunFailed.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

// How the program speaks: its exit codes, the two output streams, progress, the mistakes of a workflow file.

enum ExitCode : int {
  kOk = 0,
  kRunFailed = 1,
  kUsage = 2,
  kInvalidFile = 3,
  kResources = 4,
  kTimeout = 5,
  kVerificationFailed = 6,
  kSuspended = 7,
  kInterrupted = 130,
};

/// Ends the verb with this code after `what()` was shown.
class Failure : public std::runtime_error {
 public:
  /// Nothing is printed if the text is empty.
  Failure(ExitCode exit_code, const std::string& text) : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

// What the two output streams are, and how to write on them: texts, progress, the mistakes of a workflow file.

bool stdout_is_terminal();
bool stderr_is_terminal();

/// A terminal on stderr that can move its cursor (TERM is not "dumb").
bool can_redraw();

/// Colours on stderr: a terminal, and neither NO_COLOR nor TERM=dumb.
bool use_colour();

/// The terminal reads UTF-8, as far as the locale says; true when the locale says nothing.
bool terminal_is_utf8();

enum class Style { plain, bold, dim, red, green, yellow, blue, cyan };

/// `text` with the style around it if `use_colour()`.
std::string styled(Style style, std::string_view text);

/// A warning as one line, with its line end.
std::string warning_line(std::string_view message);

/// To stderr, all at once.
void note(std::string_view text);

/// To stdout, flushed, and not cut by a second Ctrl-C. Agents' text is made printable when stdout is a terminal, and is
/// left as it is otherwise.
void result(std::string_view text);

/// `text` made printable for stdout's terminal, with the style around it if that shows colours; in a pipe or a file
/// as it is.
std::string coloured(Style style, std::string_view text);

/// To stdout like `result`, of texts that `coloured` made.
void coloured_result(std::string_view text);

/// Throws Failure when something written to stdout did not arrive.
void check_stdout();

// What a user sees of long work: loading a model, profiling it.

/// Returns a callback that takes a file and the fraction of the work on it that is done, 0 to 1. On a terminal it
/// redraws one line, which goes at the end; elsewhere it prints a line when the work has taken a second, and then every
/// five seconds, so that short work is silent.
std::function<void(const std::string& path, double fraction)> progress_line(std::string doing);

// How far a download is, on stderr: one line drawn in place on a terminal, elsewhere a line every few seconds.

class TransferLine {
 public:
  TransferLine();
  ~TransferLine();
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;

  /// `done` of `total` bytes; -1: the total is unknown.
  void update(const std::string& name, std::int64_t done, std::int64_t total);
  /// A line of its own; the progress goes on below it.
  void say(const std::string& text);
  /// Erases the line. Nothing is drawn afterwards until the next update.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool redraw_;
  bool drawn_ = false;
  Clock::time_point last_;
  std::deque<std::pair<Clock::time_point, std::int64_t>> samples_;  // samples of the last seconds, for the rate
};

// How the mistakes of a workflow file are shown.

/// All of them to stderr, each with its place. Returns their codes.
std::set<std::string> note_mistakes(const WorkflowError& error);

/// On a terminal one line that says where to read more, once for all codes; elsewhere nothing.
void note_explain(const std::set<std::string>& codes);

}  // namespace baton::cli
