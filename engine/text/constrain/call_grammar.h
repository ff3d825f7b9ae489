// SPDX-License-Identifier: Apache-2.0
// What an answer is that may call tools: a text, calls in the form that the model writes them in, or a text and calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/text/constrain/grammar.h"

namespace baton {

/// How a model writes calls of tools, as the pieces that stand in a text one behind the other. Special tokens stand in
/// the pieces as special_text() writes them. Blanks at the ends of a piece may be missing when calls are read.
struct CallSyntax {
  std::string first = {};                // in front of all calls
  std::string open = "<tool_call>\n";    // in front of each: up to its object or its name
  std::string named = {};                // between the name and the arguments; kCallId stands for an id
  std::string close = "\n</tool_call>";  // behind each
  std::string between = "\n";            // two calls
  std::string last = {};                 // behind all
  bool several = true;                   // an answer may have several calls

  bool object = true;  // the name and the arguments are members of one object of JSON
  std::string name_key = "name", arguments_key = "arguments";
  std::string id_key = {};  // the key of an id that stands before the name; empty: calls have no id

  ValueNotation arguments = {};  // without an object

  // Answers in channels (gpt-oss): each begins with a header.
  std::string text_open = {};                           // in front of a text
  std::string preamble_open = {}, preamble_close = {};  // around a text in front of calls
  std::vector<CallSyntax> also = {};                    // other headers of calls

  /// What calls begin with, up to a blank or a bracket. Empty: an answer that begins with a call's first character is
  /// one.
  std::string marker() const;
};

/// Stands in CallSyntax::named for the id of a call.
inline constexpr char kCallId = '\x01';

/// A tool as a model sees it.
struct ToolSchema {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON Schema of the arguments
  std::string shown = {};  // the schema that the model is shown, of a tool that the workflow's author has not written:
                           // special tokens in it and in the description are text; empty: `parameters`
  bool enforced = true;    // false: a call has any object, and is checked when it is complete
};

/// What may stand in front of the calls of an answer.
enum class TextBefore : std::uint8_t { allowed, forbidden, required };

/// What an answer that may call tools is held to.
struct CallRules {
  int max_calls = 1;
  bool needed = false;  // there is a call; otherwise the answer may be a text
  TextBefore text = TextBefore::allowed;
  bool bare = true;  // calls may be bare objects of JSON instead, alone, in a list or in a block of code
};

/// One call, or up to `max_calls` of them if the syntax allows several. Each names one of the tools, of which there is
/// at least one, and has arguments of its schema. Any text is an answer without calls, of JSON too, unless it holds the
/// marker or begins as a bare call does: with an object whose first member names one of the tools. Bare calls stand on
/// one line each: so an object that an answer begins with must have its first member on the line of its bracket. Throws
/// ConstraintError for a schema that cannot be enforced, with the tool's name.
std::shared_ptr<const Grammar> call_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                                            const CallRules& rules);

/// Any text that holds no call of the tools in any of these forms.
std::shared_ptr<const Grammar> text_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools);

}  // namespace baton
