// SPDX-License-Identifier: Apache-2.0
// Prompts of agents: short forms, files and loops become messages of template pieces.
#pragma once

#include <string>
#include <vector>

#include "workflows/format/spec.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

/// `prompt` has passed the format check. Messages name the agent.
std::vector<MessageSpec> read_prompt(const YamlNode& prompt, const std::string& agent, Diagnostics& diagnostics);

/// Template pieces of a text with the place of each; ${env:...} in fixed text is resolved.
PromptItem read_template(const YamlNode& text, const std::string& owner, Diagnostics& diagnostics);

}  // namespace baton
