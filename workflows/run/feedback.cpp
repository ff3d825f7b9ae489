// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/feedback.h"

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

std::vector<PromptMessage> messages_after(const PlannedTurn& turn, const std::vector<FailedOutput>& failed) {
  const std::vector<TemplatePiece>& feedback = turn.retry.feedback.empty() ? default_feedback() : turn.retry.feedback;
  std::vector<PromptMessage> messages = turn.messages;
  if (messages.back().role != "user") messages.push_back({"user", {}});
  std::vector<PromptPiece>& pieces = messages.back().pieces;
  for (const FailedOutput& one : failed) {
    if (!pieces.empty()) pieces.push_back({"\n\n"});
    for (const TemplatePiece& piece : feedback) {
      if (piece.placeholder.empty()) {
        pieces.push_back({piece.text, "", piece.data});
      } else {
        const bool problem = piece.placeholder == kErrorPlaceholder;
        pieces.push_back({problem ? beginning(one.problem, kMaxProblem) : one.text, "", true});
      }
    }
  }
  return messages;
}

}  // namespace baton
