// SPDX-License-Identifier: Apache-2.0
// Prompt templates: text with {{ name }} placeholders, parsed once into pieces. Single braces are plain text, and
// substituted text is never parsed.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tools/tool.h"
#include "engine/engine.h"
#include "engine/text/templates.h"
#include "engine/text/text_ids.h"

namespace baton {

/// A piece of fixed text, or a placeholder by name ("user_question", "it.output").
struct TemplatePiece {
  std::string text;         // the fixed text
  std::string placeholder;  // empty for fixed text
  std::size_t offset = 0;   // byte offset in the source; for placeholders, of the name
  bool data = false;        // fixed text that is not the author's: special tokens in it are text
};

struct TemplateError {
  std::size_t offset = 0;
  std::string message;
};

/// Returns the pieces in order; adjacent text is one piece. Adds unclosed or empty placeholders and invalid names to
/// `errors`. A name is [a-z][a-z0-9_]* with an optional .member and may have blanks around it. "{{{{" stands for a
/// literal "{{".
std::vector<TemplatePiece> parse_template(std::string_view source, std::vector<TemplateError>& errors);

// Converts the messages of one agent's turn to the parts of its prompt: the chat template is rendered around the
// placeholders, and each piece of fixed text and each value is tokenized as a piece of the whole. An answer's token ids
// are inserted unchanged.

class CallableTools;

/// Returns the token ids of a slot's value, which begins as `start` says.
using SlotValue = std::function<TokenText(const std::string& slot, PieceStart start)>;

/// The value of a slot.
struct SlotContent {
  std::string_view text;  // valid until the prompt is made
  TokenText tokens = {};  // the ids that a model wrote the text with; none: the text is encoded
};
using SlotContents = std::function<SlotContent(const std::string& slot)>;

/// A part of a prompt whose values are not all known.
struct FramePart {
  std::string slot;  // placeholder name; empty for fixed text
  TokenText tokens;  // empty if the slot's value is not known

  // If all values before a fixed text may be empty, its tokens depend on them, and the text is encoded again.
  PieceStart start;  // what `tokens` were made for
  std::string text;  // empty if `tokens` do not depend on the values
  TextIds::Kind kind = TextIds::Kind::authored;

  bool is_known() const { return slot.empty() || !tokens.empty(); }
};

/// Returns the prompt without the values of its slots: fixed text as ids, and each slot as a part without tokens.
/// `tools`: what the model may call, shown as its chat template shows them, or behind the system message; null: none.
/// Throws ModelError when the chat template drops or repeats a slot's text, and Interrupted soon after a stop was
/// requested. `texts` keeps the ids of texts; if it is null, each text is encoded.
std::vector<FramePart> build_frame(const ModelText& model, const std::vector<PromptMessage>& messages,
                                   const CallableTools* tools = nullptr, const std::stop_token& stop = {},
                                   TextIds* texts = nullptr);

/// Fills in the values of the frame's slots, except for slots that have tokens already, and leaves out parts without
/// tokens. `value` is called once for each slot and start; its exceptions pass through. Throws std::length_error beyond
/// 16 Mi tokens.
std::vector<PromptPart> fill_frame(const ModelText& model, const std::vector<FramePart>& frame, const SlotValue& value,
                                   const std::stop_token& stop = {}, TextIds* texts = nullptr);

/// The tokens of a known part of a frame, which begins as `start` says.
TokenText tokens_of_part(const ModelText& model, const FramePart& part, PieceStart start,
                         const std::stop_token& stop = {}, TextIds* texts = nullptr);

/// Makes the frame and fills it. Fixed text, which the workflow's author wrote, recognises special tokens, unless it is
/// data. Slot values are ids and cannot inject special tokens, and the template never sees a value or data: one that
/// trims a message does not trim a value at the message's end (prompt_with_values). A model without a chat template
/// gets the messages joined by newlines, after the tokens that its tokenizer puts before a text.
std::vector<PromptPart> build_prompt(const ModelText& model, const std::vector<PromptMessage>& messages,
                                     const SlotValue& value, const CallableTools* tools = nullptr,
                                     const std::stop_token& stop = {});

/// The prompt that the chat template makes of the values themselves: what it trims, cuts out or writes otherwise is so
/// in the prompt, as if the template had the values as text. Special tokens in values stay text. A value that the
/// template leaves as it is has the ids of `contents`; of one that is cut, the ids that are not cut stay. `frame`:
/// build_frame's of the same messages and tools; null: it is built. Throws like build_frame and fill_frame, and what
/// the template throws for the values. More than 4 MiB of values are not shown to the template: they stand as they are.
std::vector<PromptPart> prompt_with_values(const ModelText& model, const std::vector<PromptMessage>& messages,
                                           const SlotContents& contents, const std::vector<FramePart>* frame = nullptr,
                                           const CallableTools* tools = nullptr, const std::stop_token& stop = {},
                                           TextIds* texts = nullptr);

/// Throws ModelError, which names the message, if the chat template refuses messages of these roles in this order.
void check_roles(const ModelText& model, const std::vector<PromptMessage>& messages, const std::stop_token& stop = {});

/// What is done to these messages since the chat template does not take all of them (ChatOptions::merges_roles); empty:
/// nothing.
std::string merged_roles(const ModelText& model, const std::vector<PromptMessage>& messages,
                         const std::stop_token& stop = {});

/// Returns the prompt as text, including special tokens, for `render`.
std::string prompt_text(const ModelText& model, const std::vector<PromptPart>& parts);

}  // namespace baton
