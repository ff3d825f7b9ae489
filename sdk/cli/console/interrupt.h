// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first asks the work to stop and keep what it has, the second ends the program at once. A command that
// never asks for stops is ended by the first.
#pragma once

#include <functional>
#include <stop_token>

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

}  // namespace baton::cli
