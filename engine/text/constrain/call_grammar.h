// SPDX-License-Identifier: Apache-2.0
// What an answer is that may call tools: a text, calls in the form that the model writes them in, or a text and calls.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/text/constrain/grammar.h"

namespace baton {

/// How a model writes calls of tools: objects of JSON, each between `open` and `close`, or all of them in one list.
struct CallSyntax {
  std::string open = "<tool_call>\n", close = "\n</tool_call>";  // blanks at their ends may be missing
  bool list = false;                                             // one pair around all calls, with ", " between them
  std::string name_key = "name", arguments_key = "arguments";

  /// What calls begin with: `open` without blanks and the bracket of a list. Empty: an answer that begins with '{' is a
  /// call.
  std::string marker() const;
};

/// A tool as a model sees it.
struct ToolSchema {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON Schema of the arguments
  std::string shown = {};  // the schema that the model is shown, of a tool that the workflow's author has not written:
                           // special tokens in it and in the description are text; empty: `parameters`
  bool enforced = true;    // false: a call has any object, and is checked when it is complete
};

/// One call, or up to `max_calls` of them where the syntax allows several. Each names one of the tools, of which there
/// is at least one, and has arguments of its schema. `text`: text may stand before the first call, and the calls may be
/// bare objects, alone or in a block ```json, instead. Throws ConstraintError for a schema that cannot be enforced,
/// with the tool's name.
std::shared_ptr<const Grammar> call_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools, int max_calls,
                                            bool text);

/// Any text that holds no call in any of these forms. Throws ConstraintError for a marker whose first character occurs
/// in it again.
std::shared_ptr<const Grammar> text_grammar(const CallSyntax& syntax, bool blocks);

}  // namespace baton
