// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <mutex>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

constexpr std::chrono::milliseconds kSlice(100);  // between two looks at a stop request

/// False: a stop was requested.
bool wait_for_line(const std::stop_token& stop) {
  while (std::cin.rdbuf()->in_avail() <= 0) {
    if (stop.stop_requested()) return false;
    if (wait_for_input(kSlice)) return true;
  }
  return true;
}

}  // namespace

bool can_ask() { return is_terminal(StandardStream::input) && stderr_is_terminal(); }

std::string question_text(const Asked& asked) {
  std::string text = fmt::format("{} asks: {}", asked.turn, printable(asked.question, Lines::keep));
  if (!asked.choices.empty())
    text += fmt::format(" ({})", printable(fmt::format("{}", fmt::join(asked.choices, ", ")), Lines::fold));
  return text;
}

std::optional<std::string> ask_person(const Asked& asked, const std::stop_token& stop) {
  static std::mutex one_at_a_time;  // steps that run concurrently may ask at the same time
  const std::lock_guard lock(one_at_a_time);
  if (!std::cin) return std::nullopt;  // the input has ended
  note(question_text(asked) + "\n");
  while (true) {
    note(styled(Style::bold, "> "));
    std::string line;
    if (!wait_for_line(stop) || !std::getline(std::cin, line)) return std::nullopt;
    const auto& choices = asked.choices;
    if (choices.empty() || std::find(choices.begin(), choices.end(), line) != choices.end()) return line;
    note(fmt::format("expected one of: {}\n", printable(fmt::format("{}", fmt::join(choices, ", ")), Lines::fold)));
  }
}

}  // namespace baton::cli
