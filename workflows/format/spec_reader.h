// SPDX-License-Identifier: Apache-2.0
// A checked tree becomes a WorkflowSpec; what only makes sense together (names, keys that exclude each other) is
// checked here.
#pragma once

#include "agents/tool.h"
#include "workflows/format/output_grammar.h"
#include "workflows/format/spec.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

/// `root` has passed the format check; broken nodes are passed over. The spec is complete where `diagnostics` is empty,
/// and `grammars` has those of its outputs then.
WorkflowSpec read_spec(const YamlNode& root, const ToolRegistry& tools, bool absent_tools, OutputGrammars& grammars,
                       Diagnostics& diagnostics);

/// Checks what every placeholder of the prompts, tools and conditions names.
void check_placeholders(const WorkflowSpec& spec, Diagnostics& diagnostics);

}  // namespace baton
