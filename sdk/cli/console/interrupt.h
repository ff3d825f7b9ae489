// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first asks the work to stop and keep what it has, the second ends the program at once.
#pragma once

#include <functional>
#include <stop_token>

namespace baton::cli {

/// Catches SIGINT and SIGTERM from now on. Once, from main.
void watch_interrupts();

/// Requested by the first signal. Any thread.
std::stop_token interrupted();

/// While one lives the program does not end at once, for up to two seconds: what is being written is written whole.
class Whole {
 public:
  Whole();
  ~Whole();
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
};

/// Called before the program ends at once, while it lives: puts the terminal back, removes half-written files.
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
