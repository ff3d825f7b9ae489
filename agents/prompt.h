// SPDX-License-Identifier: Apache-2.0
// From the messages of one agent's turn to the parts of its prompt: the chat template is rendered around the
// placeholders, fixed text is tokenised piece by piece, and values stand as the ids they are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/text/model_text.h"

namespace baton {

/// Fixed text, or a slot by name.
struct PromptPiece {
  std::string text;
  std::string slot;
};

struct PromptMessage {
  std::string role;  // system, user, assistant
  std::vector<PromptPiece> pieces;
};

/// Token ids of a slot's value.
using SlotValue = std::function<std::vector<TokenId>(const std::string& slot)>;

/// The prompt without the values of its slots: fixed text as ids, each slot as a part without tokens.
/// Throws ModelError when the chat template drops or repeats a slot's text.
std::vector<PromptPart> build_frame(const ModelText& model, const std::vector<PromptMessage>& messages);

/// The frame with the values of its slots, but for those that have tokens already. Parts without tokens are left out.
/// `value` is asked once for each slot; what it throws passes through.
std::vector<PromptPart> fill_frame(const std::vector<PromptPart>& frame, const SlotValue& value);

/// Both in one. Fixed text recognises special tokens (it is the author's); slot values are ids and cannot inject any,
/// and no value is seen by the template. A template that trims a message does not trim what is in a slot at its end. A
/// model without a chat template gets the messages joined by newlines, after what its tokenizer puts before a text.
std::vector<PromptPart> build_prompt(const ModelText& model, const std::vector<PromptMessage>& messages,
                                     const SlotValue& value);

/// The prompt as text, special tokens included, for `render` and the records.
std::string prompt_text(const ModelText& model, const std::vector<PromptPart>& parts);

}  // namespace baton
