// SPDX-License-Identifier: Apache-2.0
// Conversation: what an agent has been told and has answered, as token ids. The next prompt is these ids, unchanged,
// and the new messages behind them, so that the KV of the ids can be used again.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agents/prompts/prompt.h"
#include "engine/kv/segment_handle.h"
#include "engine/text/text_ids.h"

namespace baton {

struct SaidMessage {
  std::string role;
  std::string text;
  MessageCalls calls = {};
  bool operator==(const SaidMessage&) const = default;
};

/// Returns the messages of a host: a list of {"role": "system|user|assistant|tool", "content": "..."} as JSON; "text"
/// may stand for "content". An assistant may have "tool_calls", and a result names its call as "tool_call_id", both as
/// in OpenAI's interface. Throws std::runtime_error with the place and what was expected.
std::vector<SaidMessage> read_messages(std::string_view json);

/// Immutable once it is shared.
struct Conversation {
  TokenText tokens;  // all tokens, from the first prompt to the last answer
  /// `tokens` without the thinking of the last answer, which only the next prompt still has; empty: there is no
  /// thinking to leave out.
  TokenText bare;
  ContextHandle context;                            // KV of its first tokens; may be null
  std::vector<SaidMessage> head;                    // system messages and examples, which stay
  std::vector<std::vector<SaidMessage>> exchanges;  // each ends with the answer
  std::shared_ptr<TextIds> texts;                   // the session's texts; null: texts are tokenized anew
};

/// A turn's messages, split so that the turn can continue a conversation.
struct TurnMessages {
  /// System messages, and all up to the turn's last assistant message.
  std::vector<PromptMessage> head;
  /// The messages behind it, without system messages. Empty: the turn cannot continue a conversation.
  std::vector<PromptMessage> next;
};
TurnMessages messages_of(const std::vector<PromptMessage>& turn);
/// True when `next` is not empty.
bool can_continue(const std::vector<PromptMessage>& turn);

/// Returns the frame (agents/prompts/prompt.h) of a prompt that continues the conversation: its ids as one part, the
/// end of its last answer's turn, `next`, and the beginning of an answer. Throws like build_frame.
std::vector<FramePart> continuing_frame(const ModelText& model, const Conversation& conversation,
                                        const std::vector<PromptMessage>& next, const CallableTools* tools = nullptr,
                                        const std::stop_token& stop = {}, TextIds* texts = nullptr);

/// Returns the same prompt with the values of its slots, as prompt_with_values makes it: the conversation's ids stay as
/// they are.
std::vector<PromptPart> continuing_prompt(const ModelText& model, const Conversation& conversation,
                                          const std::vector<PromptMessage>& next, const SlotContents& contents,
                                          const CallableTools* tools = nullptr, const std::stop_token& stop = {},
                                          TextIds* texts = nullptr);

/// Returns the messages of the same prompt without the first exchanges: only the last `kept` of them, and the head, are
/// rendered again.
std::vector<PromptMessage> shortened_messages(const Conversation& conversation, std::size_t kept,
                                              const std::vector<PromptMessage>& next);

/// Returns a lower bound of the tokens of a prompt that holds the last `kept` exchanges, without rendering it.
std::size_t least_tokens(const std::shared_ptr<const Tokenizer>& tokenizer, const Conversation& conversation,
                         std::size_t kept, TextIds* texts = nullptr, const std::stop_token& stop = {});

}  // namespace baton
