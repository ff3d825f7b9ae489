// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/feedback.h"

#include <fmt/format.h>

#include "engine/base/json/beginning.h"
#include "workflows/format/placeholder.h"

namespace baton {
namespace {

constexpr std::size_t kMaxProblem = 1000;  // bytes; it may quote the output
const std::vector<TemplatePiece>& default_feedback() {
  static const std::vector<TemplatePiece> pieces = {
      {"An earlier answer had an error: ", ""}, {"", std::string(kErrorPlaceholder)}, {".", ""}};
  return pieces;
}

}  // namespace

void add_feedback(TurnInput& input, const std::vector<FailedOutput>& failed) {
  const std::vector<TemplatePiece>& own = input.turn->retry.feedback;
  input.messages = input.turn->messages;
  if (input.messages.back().role != "user") input.messages.push_back({"user", {}});
  std::vector<PromptPiece>& pieces = input.messages.back().pieces;
  for (const FailedOutput& one : failed) {
    const std::string slot = fmt::format("failed output {}", &one - failed.data());  // no placeholder has blanks
    input.slots.push_back({slot, one.text, one.tokens.empty() ? nullptr : &one.tokens});
    if (!pieces.empty()) pieces.push_back({"\n\n"});
    for (const TemplatePiece& piece : own.empty() ? default_feedback() : own) {
      if (piece.placeholder.empty()) {
        pieces.push_back({piece.text, "", piece.data});
      } else if (piece.placeholder == kErrorPlaceholder) {
        pieces.push_back({beginning(one.problem, kMaxProblem), "", true});
      } else {
        pieces.push_back({"", slot});
      }
    }
  }
}

}  // namespace baton
