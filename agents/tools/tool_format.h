// SPDX-License-Identifier: Apache-2.0
// How a model is told which tools it may call, how it writes a call or a block of code, and how it gets results.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/constrain/call_grammar.h"
#include "engine/text/text_ids.h"

namespace baton {

/// Returns the content of the last block between ``` fences, without the line end before the closing fence. The opening
/// fence may name a language. A block that the end of the text cuts off counts. Empty when there is no block.
std::optional<std::string> last_code_block(std::string_view text);

/// A piece of fixed text, or a slot by name.
struct PromptPiece {
  std::string text;
  std::string slot;
  bool data = false;  // of fixed text: special tokens in it are text
};

struct PromptMessage {
  std::string role;  // system, user, assistant
  std::vector<PromptPiece> pieces;
};

/// How a model is told which tools it may call, how it writes a call, and how it gets the results. All of it
/// is read off the model's own chat template; a model whose template knows no tools gets a general form.
struct ToolFormat {
  bool of_template = false;  // the chat template shows the tools, calls and results
  CallSyntax syntax;
  std::string turn_end;     // what the template writes behind the assistant's text or calls
  bool enforceable = true;  // the marker consists of tokens that an answer under a constraint may have
};

/// Renders probes of the chat template. Throws Interrupted soon after a stop was requested.
ToolFormat tool_format_of(const ModelText& model, const std::stop_token& stop = {});

/// A tool as chat templates get it: a JSON object {"name", "description", "parameters"}. In that of a tool with a
/// schema to be shown, texts that the tokenizer would take for special tokens get a blank behind their first character.
/// Throws ModelError where that does not help.
std::string tool_json(const ToolSchema& tool, const Tokenizer& tokenizer);

/// The messages and the options of the chat template that show the tools.
struct PromptWithTools {
  std::vector<PromptMessage> messages;
  std::vector<std::string> tools;  // ChatOptions::tools
};
PromptWithTools with_tools(const ModelText& model, const ToolFormat& format, std::vector<PromptMessage> messages,
                           const std::vector<ToolSchema>& tools);

/// The result of a call, for the model.
struct CallResult {
  std::string tool;
  std::string text;
};

/// What follows the tokens of an answer that called tools: the end of its turn, the results as data, and the beginning
/// of the next answer. `texts`: where the ids of texts come from; null: they are made anew. Throws ModelError if the
/// template has no place for results.
std::vector<PromptPart> after_calls(const ModelText& model, const ToolFormat& format,
                                    const std::vector<CallResult>& results, const std::stop_token& stop = {},
                                    TextIds* texts = nullptr);

}  // namespace baton
