// SPDX-License-Identifier: Apache-2.0
// The text side of a server that takes messages and neither token ids nor a chat template: ids are the bytes of UTF-8,
// and one id for the beginning of each role's message, which no text becomes. So a value cannot write a role marker
// here either, and whatever builds prompts of ids needs to know nothing of such servers.
#pragma once

#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/model_text.h"

namespace baton {

/// A tokenizer and a chat template of this kind.
ModelText message_text();

/// The messages that a prompt by message_text() consists of, without the answer that is to be written. What stands
/// before the first message is of the user.
std::vector<ChatMessage> messages_of(const std::vector<TokenId>& prompt);

}  // namespace baton
