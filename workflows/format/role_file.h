// SPDX-License-Identifier: Apache-2.0
// `use: name`: an agent that starts from a file of its own.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>

#include "workflows/format/yaml_tree.h"

namespace baton {

/// The agent files of one workflow, each read once.
class RoleFiles {
 public:
  /// Looked for as NAME.yaml, in this order: next to the workflow, in roles/ next to it, in agents/roles of the folders
  /// above it, and in `role_folders`. Both references must outlive this.
  RoleFiles(std::span<const std::filesystem::path> role_folders, Diagnostics& diagnostics)
      : role_folders_(role_folders), diagnostics_(diagnostics) {}

  /// Puts the agent's own keys over those of the file that its `use` names.
  void apply(YamlNode& agent);

 private:
  /// Null, with errors, where the agent cannot use the file that `name` stands for.
  const YamlNode* find(const YamlNode& name);
  std::optional<YamlNode> read(const std::filesystem::path& file, const YamlNode& name);

  std::span<const std::filesystem::path> role_folders_;
  Diagnostics& diagnostics_;
  std::map<std::filesystem::path, std::optional<YamlNode>> files_;  // nothing: a file that cannot be used
  std::size_t nodes_ = 0;                                           // of all agents that were applied
};

}  // namespace baton
