// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/base/system/terminal.h"
#include "sdk/console/text.h"

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

/// True when a StopOne takes it.
bool stops_one(Interrupt interrupt) {
  const std::lock_guard lock(watch().mutex);
  return interrupt == Interrupt::ctrl_c && watch().one != nullptr && watch().one->request_stop();
}

/// The first signal requests a stop, the second one ends the program; if nothing asks for stops, the first one does.
void wait_for_interrupts() {
  Watch& state = watch();
  while (stops_one(next_interrupt())) {
  }
  state.stop.request_stop();
  if (state.obeyed) next_interrupt();
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
  catch_interrupts();
  try {
    std::thread(wait_for_interrupts).detach();
  } catch (const std::system_error&) {
    leave_interrupts();
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

namespace fs = std::filesystem;
void write_aside(const fs::path& path, const std::function<void(const fs::path& aside)>& write,
                 const std::function<void(const fs::path& aside)>& remove) {
  const fs::path aside = path.parent_path() / fmt::format(".{}.part-{}", path.filename().string(), process_number());
  // Writing and removing exclude each other; after the last words nothing is written any more, for the program ends.
  std::mutex writing;
  const LastWords words([&] {
    writing.lock();
    remove(aside);
  });
  const std::lock_guard lock(writing);
  try {
    remove(aside);
    write(aside);
  } catch (...) {
    remove(aside);
    throw;
  }
}

int write_new_file(const fs::path& path, std::string_view bytes) {
  UniqueFd file = open_file(path, Open::write | Open::create | Open::only_new | Open::no_link);
  return file && write_all(file, bytes) && file.close() ? 0 : errno;
}

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const auto fail = [&](const std::string& why) {
    return Failure(kRunFailed, fmt::format("cannot write {}: {}", path.string(), why));
  };
  const WriteTarget target = write_target(path);
  if (!target.problem.empty()) throw fail(target.problem);
  const fs::path& file = target.file;
  const auto write = [&](const fs::path& aside) {
    std::error_code error(write_new_file(aside, bytes), std::generic_category());
    if (!error) fs::rename(aside, file, error);
    if (error) throw fail(error.message());
  };
  write_aside(file, write, [](const fs::path& aside) {
    std::error_code ignored;
    fs::remove(aside, ignored);
  });
}

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

namespace {

using Clock = std::chrono::steady_clock;

struct Work {
  std::string path;
  Clock::time_point begin, next;
  bool shown = false;
};

}  // namespace

std::function<void(const std::string& path, double fraction)> progress_line(std::string doing) {
  return [doing = std::move(doing), redraws = can_redraw(), work = std::make_shared<Work>()](const std::string& path,
                                                                                             double fraction) {
    const std::string name = printable(std::filesystem::path(path).filename().string(), Lines::fold);
    if (redraws) {
      const std::string line = fmt::format("{} {:3.0f} % {}", doing, 100 * fraction, name);
      note("\r\x1b[K" + (fraction < 1 ? head(line, terminal_size().columns - 1) : std::string()));
      return;
    }
    const Clock::time_point now = Clock::now();
    if (work->path != path) *work = {path, now, now + std::chrono::seconds(1), false};
    if (fraction < 1 && now >= work->next) {
      note(fmt::format("{} {}: {:.0f} %\n", doing, name, 100 * fraction));
      work->shown = true;
      work->next = now + std::chrono::seconds(5);
    }
    if (fraction < 1) return;
    const double seconds = std::chrono::duration<double>(now - work->begin).count();
    if (work->shown) note(fmt::format("{} {}: done in {:.1f} s\n", doing, name, seconds));
    *work = {};
  };
}

namespace {

constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr std::chrono::seconds kBetweenLines{5};
constexpr std::chrono::seconds kRateWindow{8};

}  // namespace

TransferLine::TransferLine() : redraw_(can_redraw()), last_(redraw_ ? Clock::time_point() : Clock::now()) {}
TransferLine::~TransferLine() { clear(); }

void TransferLine::update(const std::string& name, std::int64_t done, std::int64_t total) {
  const auto now = Clock::now();
  if (!samples_.empty() && done < samples_.back().second) samples_.clear();  // it began again
  if (samples_.empty() || now - samples_.back().first >= kBetweenDraws) samples_.emplace_back(now, done);
  while (samples_.size() > 2 && now - samples_.front().first > kRateWindow) samples_.pop_front();
  if (now - last_ < (redraw_ ? Clock::duration(kBetweenDraws) : Clock::duration(kBetweenLines))) return;
  last_ = now;

  const double seconds = std::chrono::duration<double>(now - samples_.front().first).count();
  const double rate = seconds > 0 ? static_cast<double>(done - samples_.front().second) / seconds : 0;  // bytes/s
  std::string text = size(static_cast<double>(done));
  if (total > 0) {
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    text = fmt::format("{:3.0f} %  {} of {}", 100 * std::min(1.0, fraction), text, size(static_cast<double>(total)));
  }
  if (rate > 0) text += fmt::format("  {}/s", size(rate));
  if (rate > 0 && total > done)
    text += fmt::format("  {} left", duration(1000 * static_cast<double>(total - done) / rate));
  const std::string file = printable(name, Lines::fold, !terminal_is_utf8());
  if (!redraw_) return note(fmt::format("{}  {}\n", text, file));
  drawn_ = true;
  note("\r\x1b[K" + head(fmt::format("{}  {}", text, file), terminal_size().columns - 1));
}

void TransferLine::say(const std::string& text) {
  clear();
  note(printable(text, Lines::keep, !terminal_is_utf8()) + "\n");
}

void TransferLine::clear() {
  if (drawn_) note("\r\x1b[K");
  drawn_ = false;
}

std::set<std::string> note_mistakes(const WorkflowError& error) {
  note(printable(error.what(), Lines::keep) + "\n");
  std::set<std::string> codes;
  for (const Diagnostic& item : error.items) codes.insert(item.code);
  return codes;
}

void note_explain(const std::set<std::string>& codes) {
  if (codes.empty() || !stderr_is_terminal()) return;
  note(styled(Style::dim, fmt::format("More about it: baton check --explain {}", fmt::join(codes, " "))) + "\n");
}

}  // namespace baton::cli
