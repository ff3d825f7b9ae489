// SPDX-License-Identifier: Apache-2.0
// `use: name`: an agent that starts from a file of its own.
#pragma once

#include <filesystem>
#include <span>

#include "workflows/format/yaml_tree.h"

namespace baton {

/// Puts the agent's own keys over those of the file that its `use` names. Looked for as NAME.yaml, in this order:
/// next to the workflow, in roles/ next to it, in agents/roles of the folders above it, and in `role_folders`.
void apply_role_file(YamlNode& agent, std::span<const std::filesystem::path> role_folders, Diagnostics& diagnostics);

}  // namespace baton
