// SPDX-License-Identifier: Apache-2.0
// The tools that a server lists, as a model is told of them and as its calls are checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/constrain/call_grammar.h"

namespace baton {

inline constexpr std::size_t kMaxMcpTools = 128;  // of one server

/// Adds the tools of an answer to `tools/list`. A tool whose name is no name (letters, digits, '_', '-', '.'; at most
/// 64) is left out, and one beyond kMaxMcpTools; `left_out` gets a sentence of each. Keywords of a tool's JSON Schema
/// that the project does not have (docs/yaml.md) are left out of what its calls are checked by; where what is left
/// cannot be enforced, its arguments are any object. The server checks them by itself. Returns the cursor of the next
/// page, or an empty text. Throws std::runtime_error for an answer that is no list of tools,
/// or has an object of more than 256 members.
std::string read_tools(std::string_view message, std::vector<ToolSchema>& tools, std::vector<std::string>& left_out);

}  // namespace baton
