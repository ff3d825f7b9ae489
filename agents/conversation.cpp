// SPDX-License-Identifier: Apache-2.0
#include "agents/conversation.h"

#include <algorithm>

namespace baton {
namespace {

constexpr const char* kAnswer = "answer";  // the slot that stands for the last answer

PromptMessage told(const SaidMessage& message) { return {message.role, {{message.text, "", true}}}; }

}  // namespace

TurnMessages messages_of(const std::vector<PromptMessage>& turn) {
  TurnMessages parts;
  const auto last = std::find_if(turn.rbegin(), turn.rend(), [](const auto& one) { return one.role == "assistant"; });
  for (auto at = turn.begin(); at != turn.end(); ++at)
    (at < last.base() || at->role == "system" ? parts.head : parts.next).push_back(*at);
  return parts;
}

bool can_continue(const std::vector<PromptMessage>& turn) {
  const auto last = std::find_if(turn.rbegin(), turn.rend(), [](const auto& one) { return one.role != "system"; });
  return last != turn.rend() && last->role != "assistant";
}

std::vector<PromptPart> continuing_frame(const ModelText& model, const Conversation& conversation,
                                         const std::vector<PromptMessage>& next, const CallableTools* tools,
                                         const std::stop_token& stop) {
  // Templates want a question before an answer; what it is has no effect on what follows the answer.
  std::vector<PromptMessage> messages = {{"user", {{"question"}}}, {"assistant", {{"", kAnswer}}}};
  messages.insert(messages.end(), next.begin(), next.end());
  const std::vector<PromptPart> whole = build_frame(model, messages, tools, stop);
  const auto answer = std::find_if(whole.begin(), whole.end(), [](const auto& part) { return part.slot == kAnswer; });
  std::vector<PromptPart> frame = {{{}, conversation.tokens}};
  frame.insert(frame.end(), answer + 1, whole.end());
  return frame;
}

std::vector<PromptPart> shortened_frame(const ModelText& model, const Conversation& conversation, std::size_t kept,
                                        const std::vector<PromptMessage>& next, const CallableTools* tools,
                                        const std::stop_token& stop) {
  std::vector<PromptMessage> messages;
  for (const SaidMessage& message : conversation.head) messages.push_back(told(message));
  kept = std::min(kept, conversation.exchanges.size());
  for (auto exchange = conversation.exchanges.end() - static_cast<std::ptrdiff_t>(kept);
       exchange != conversation.exchanges.end(); ++exchange) {
    for (const SaidMessage& message : *exchange) messages.push_back(told(message));
  }
  messages.insert(messages.end(), next.begin(), next.end());
  return build_frame(model, messages, tools, stop);
}

}  // namespace baton
