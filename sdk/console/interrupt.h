// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first asks the work to stop and keep what it has, the second ends the program at once. A command that
// never asks for stops is ended by the first. And files that appear whole or not at all, also then.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string_view>

namespace baton::cli {

/// Catches interrupts from now on (engine/base/system/interrupts.h). Once, from main.
void watch_interrupts();

/// Requested by the first signal, which ends the program where this was never called. Any thread.
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

}  // namespace baton::cli
