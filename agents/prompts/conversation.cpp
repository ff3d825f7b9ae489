// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMessages = 10'000;    // in a host's history
constexpr const char* kAnswer = "last answer";  // the slot of the conversation; no placeholder can have this name

PromptMessage told(const SaidMessage& message) { return {message.role, {{message.text, "", true}}}; }

}  // namespace

std::vector<SaidMessage> read_messages(std::string_view json) {
  const JsonDocument list = read_json(json);
  if (!list->is_array()) throw std::runtime_error(fmt::format("expected a list, found {}", list->type_name()));
  std::vector<SaidMessage> messages;
  for (const nlohmann::json& one : *list) {
    const auto wrong = [&](const std::string& what) {
      return std::runtime_error(fmt::format("message {}: {}", messages.size() + 1, what));
    };
    const auto text = [&](const char* key) {
      return one.is_object() && one.contains(key) && one[key].is_string() ? one[key].get<std::string>() : std::string();
    };
    const char* content = one.is_object() && one.contains("text") ? "text" : "content";
    if (text("role").empty() || !one.contains(content) || !one[content].is_string())
      throw wrong("expected an object with the texts 'role' and 'content'");
    const std::string role = text("role");
    if (role != "system" && role != "user" && role != "assistant")
      throw wrong(fmt::format("expected the role system, user or assistant, found '{}'", beginning(role, 40)));
    if (messages.size() >= kMaxMessages) throw wrong(fmt::format("there are more than {}", kMaxMessages));
    messages.push_back({role, text(content)});
  }
  return messages;
}

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

namespace {

/// Templates want a question before an answer; what it is has no effect on what follows the answer.
std::vector<PromptMessage> behind_answer(const std::vector<PromptMessage>& next) {
  std::vector<PromptMessage> messages = {{"user", {{"question"}}}, {"assistant", {{"", kAnswer}}}};
  messages.insert(messages.end(), next.begin(), next.end());
  return messages;
}

}  // namespace

std::vector<FramePart> continuing_frame(const ModelText& model, const Conversation& conversation,
                                        const std::vector<PromptMessage>& next, const CallableTools* tools,
                                        const std::stop_token& stop, TextIds* texts) {
  const std::vector<FramePart> whole = build_frame(model, behind_answer(next), tools, stop, texts);
  const auto answer = std::find_if(whole.begin(), whole.end(), [](const auto& part) { return part.slot == kAnswer; });
  std::vector<FramePart> frame = {{{}, conversation.tokens, {}, {}}};
  frame.insert(frame.end(), answer + 1, whole.end());
  return frame;
}

std::vector<PromptPart> continuing_prompt(const ModelText& model, const Conversation& conversation,
                                          const std::vector<PromptMessage>& next, const SlotContents& contents,
                                          const CallableTools* tools, const std::stop_token& stop, TextIds* texts) {
  const SlotContents with_answer = [&](const std::string& slot) {
    return slot == kAnswer ? SlotContent{"answer", conversation.tokens} : contents(slot);
  };
  const std::vector<PromptPart> whole =
      prompt_with_values(model, behind_answer(next), with_answer, nullptr, tools, stop, texts);
  const auto answer = std::find_if(whole.begin(), whole.end(), [](const auto& part) { return part.slot == kAnswer; });
  if (answer == whole.end() && !conversation.tokens.empty())
    throw ModelError(fmt::format("{}: the chat template does not show the last answer", model.path.string()));
  std::vector<PromptPart> prompt;
  if (!conversation.tokens.empty()) prompt.push_back({{}, conversation.tokens});
  prompt.insert(prompt.end(), answer == whole.end() ? whole.begin() : answer + 1, whole.end());
  return prompt;
}

std::vector<PromptMessage> shortened_messages(const Conversation& conversation, std::size_t kept,
                                              const std::vector<PromptMessage>& next) {
  std::vector<PromptMessage> messages;
  for (const SaidMessage& message : conversation.head) messages.push_back(told(message));
  kept = std::min(kept, conversation.exchanges.size());
  for (auto exchange = conversation.exchanges.end() - static_cast<std::ptrdiff_t>(kept);
       exchange != conversation.exchanges.end(); ++exchange) {
    for (const SaidMessage& message : *exchange) messages.push_back(told(message));
  }
  messages.insert(messages.end(), next.begin(), next.end());
  return messages;
}

std::size_t least_tokens(const std::shared_ptr<const Tokenizer>& tokenizer, const Conversation& conversation,
                         std::size_t kept, TextIds* texts, const std::stop_token& stop) {
  if (kept >= conversation.exchanges.size()) return conversation.tokens.size();
  std::size_t tokens = 0;
  const auto count = [&](const SaidMessage& message, PieceStart start) {
    return ids_of_text(texts, tokenizer, message.text, TextIds::Kind::data, start, stop).size();
  };
  const auto add = [&](const SaidMessage& message) {
    tokens += std::min(count(message, {}), count(message, tokenizer->start_inside()));
  };
  for (const SaidMessage& message : conversation.head) add(message);
  for (std::size_t i = conversation.exchanges.size() - kept; i < conversation.exchanges.size(); ++i) {
    for (const SaidMessage& message : conversation.exchanges[i]) add(message);
  }
  return tokens;
}

}  // namespace baton
