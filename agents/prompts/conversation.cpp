// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMessages = 10'000;    // in a host's history
constexpr const char* kAnswer = "last answer";  // the slot of the conversation; no placeholder can have this name

PromptMessage told(const SaidMessage& message) { return {message.role, {{message.text, "", true}}, message.calls}; }

using Json = nlohmann::json;

/// Reads the messages of a host one by one.
class MessageReader {
 public:
  void read(const Json& one) {
    if (messages_.size() >= kMaxMessages) throw wrong(fmt::format("there are more than {}", kMaxMessages));
    SaidMessage message{text(one, "role"), ""};
    if (message.role.empty()) throw wrong("expected an object with the texts 'role' and 'content'");
    if (std::ranges::find(kRoles, message.role) == kRoles.end())
      throw wrong(
          fmt::format("expected the role system, user, assistant or tool, found '{}'", beginning(message.role, 40)));
    if (message.role == "assistant") message.calls.calls = calls(one);
    if (message.role == "tool") {
      message.calls.answered = text(one, "tool_call_id");
      if (!known_.contains(message.calls.answered))
        throw wrong("expected as 'tool_call_id' the id of a call in a message before it");
    }
    const char* content = one.contains("text") ? "text" : "content";
    const bool has_text = one.contains(content) && one[content].is_string();
    if (!has_text && (message.calls.calls.empty() || (one.contains(content) && !one[content].is_null())))
      throw wrong("expected an object with the texts 'role' and 'content'");
    if (has_text) message.text = one[content].get<std::string>();
    messages_.push_back(std::move(message));
  }

  std::vector<SaidMessage> take() { return std::move(messages_); }

 private:
  static constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

  std::runtime_error wrong(const std::string& what) const {
    return std::runtime_error(fmt::format("message {}: {}", messages_.size() + 1, what));
  }

  static std::string text(const Json& one, const char* key) {
    return one.is_object() && one.contains(key) && one[key].is_string() ? one[key].get<std::string>() : std::string();
  }

  /// As a text, which OpenAI's interface has, or as the object itself.
  static std::string arguments_of(const Json& function) {
    const auto found = function.is_object() ? function.find("arguments") : function.end();
    if (found == function.end() || found->is_null()) return "{}";
    return found->is_string() ? found->get<std::string>() : json_text(*found);
  }

  std::vector<ChatCall> calls(const Json& one) {
    std::vector<ChatCall> calls;
    if (!one.contains("tool_calls") || one["tool_calls"].is_null()) return calls;
    if (!one["tool_calls"].is_array()) throw wrong("expected 'tool_calls' as a list");
    for (const Json& call : one["tool_calls"]) {
      const Json function = call.is_object() ? call.value("function", Json()) : Json();
      ChatCall& made = calls.emplace_back(ChatCall{text(call, "id"), text(function, "name"), arguments_of(function)});
      if (made.id.empty() || made.name.empty())
        throw wrong("expected calls as {'id': '...', 'function': {'name': '...', 'arguments': '{...}'}}");
      if (!is_tool_name(made.name))
        throw wrong(fmt::format("expected 1 to 64 of [A-Za-z0-9_.-] as the name of a tool, found '{}'",
                                beginning(made.name, 40)));
      if (made.arguments.empty()) made.arguments = "{}";
      std::string problem = "it is no object";
      try {
        if (const JsonDocument arguments = read_json(made.arguments); arguments->is_object()) problem.clear();
        // Without escapes, so that what spells a special token is seen.
        if (problem.empty()) made.arguments = json_text(nlohmann::ordered_json::parse(made.arguments));
      } catch (const JsonError& error) {
        problem = error.what();
      }
      if (!problem.empty())
        throw wrong(fmt::format("expected the arguments of call '{}' as the text of a JSON object: {}",
                                beginning(made.id, 40), problem));
      known_.insert(made.id);
    }
    return calls;
  }

  std::vector<SaidMessage> messages_;
  std::set<std::string> known_;  // ids of calls
};

}  // namespace

std::vector<SaidMessage> read_messages(std::string_view json) {
  const JsonDocument list = read_json(json);
  if (!list->is_array()) throw std::runtime_error(fmt::format("expected a list, found {}", list->type_name()));
  MessageReader reader;
  for (const Json& one : *list) reader.read(one);
  return reader.take();
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
