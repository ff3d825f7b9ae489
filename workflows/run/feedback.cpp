// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/feedback.h"

#include <fmt/format.h>

#include "engine/base/utf8.h"
#include "workflows/format/placeholder.h"

namespace baton {
namespace {

constexpr std::size_t kMaxProblem = 1000;  // bytes; it may quote the output
const std::vector<TemplatePiece>& default_feedback() {
  static const std::vector<TemplatePiece> pieces = {
      {"Error: ", ""}, {"", std::string(kErrorPlaceholder)}, {". Fix it.", ""}};
  return pieces;
}

std::string shortened(const std::string& problem) {
  if (problem.size() <= kMaxProblem) return problem;
  std::size_t end = kMaxProblem;
  while (end > 0 && utf8::continues(problem[end])) --end;
  return problem.substr(0, end) + "...";
}

}  // namespace

void add_feedback(TurnInput& input, const std::vector<FailedOutput>& failed) {
  const std::vector<TemplatePiece>& own = input.turn->retry.feedback;
  input.messages = input.turn->messages;
  for (const FailedOutput& one : failed) {
    std::string slot = fmt::format("failed output {}", &one - failed.data());  // no placeholder has blanks
    input.messages.push_back({"assistant", {{"", slot}}});
    PromptMessage& feedback = input.messages.emplace_back(PromptMessage{"user", {}});
    for (const TemplatePiece& piece : own.empty() ? default_feedback() : own) {
      const bool is_problem = !piece.placeholder.empty();
      feedback.pieces.push_back({is_problem ? shortened(one.problem) : piece.text, "", is_problem || piece.data});
    }
    input.slots.push_back({std::move(slot), one.text, one.tokens.empty() ? nullptr : &one.tokens});
  }
}

}  // namespace baton
