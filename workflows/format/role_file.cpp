// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/role_file.h"

#include <fmt/format.h>

#include <system_error>

#include "workflows/format/format_table.h"
#include "workflows/format/yaml_merge.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRoleNodes = 500'000;  // of the agent files of all agents

std::vector<fs::path> folders_for(const fs::path& beside, std::span<const fs::path> role_folders) {
  std::vector<fs::path> folders = {beside, beside / "roles"};
  std::error_code code;
  const fs::path absolute = fs::absolute(beside, code).lexically_normal();
  for (fs::path above = absolute; !code && !above.empty(); above = above.parent_path()) {
    folders.push_back(above / "agents" / "roles");
    if (above == above.root_path()) break;
  }
  folders.insert(folders.end(), role_folders.begin(), role_folders.end());
  return folders;
}

/// Names of all role files there are, for the suggestion.
std::vector<std::string> known_roles(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    if (folder.filename() != "roles") continue;
    std::error_code code;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
      if (at->path().extension() == ".yaml") names.push_back(at->path().stem().string());
    }
  }
  return names;
}

}  // namespace

void RoleFiles::apply(YamlNode& agent) {
  const YamlEntry* use = agent.entry("use");
  if (use == nullptr || use->value.kind != YamlNode::Kind::string) return;  // the format check reports this
  const YamlNode* role = find(use->value);
  if (role == nullptr) {
    agent.broken = true;
    return;
  }
  nodes_ += size_of(*role).nodes;
  if (nodes_ > kMaxRoleNodes) {
    diagnostics_.error(use->value.where(), "E0106",
                       fmt::format("more than {} nodes in the agent files of all agents", kMaxRoleNodes));
    diagnostics_.fail();
  }
  std::erase_if(agent.entries, [](const YamlEntry& entry) { return entry.key.text == "use"; });
  agent = merged(*role, std::move(agent));
}

const YamlNode* RoleFiles::find(const YamlNode& name) {
  if (!is_id(name.text)) {
    diagnostics_.error(name.where(), "E0406",
                       fmt::format("'{}' is not an id; expected the name of an agent file", name.text));
    return nullptr;
  }
  const std::vector<fs::path> folders = folders_for(name.source->folder(), role_folders_);
  for (const fs::path& folder : folders) {
    const fs::path file = folder / (name.text + ".yaml");
    std::error_code code;
    if (!files_.contains(file) && !fs::is_regular_file(file, code)) continue;
    const auto [found, added] = files_.try_emplace(file);
    if (added) found->second = read(file, name);
    return found->second ? &*found->second : nullptr;
  }
  if (!diagnostics_.full())
    diagnostics_.error(name.where(), "E0501",
                       fmt::format("no agent file '{}.yaml' next to this file or in a folder of roles", name.text),
                       diagnostics_.suggestion(name.text, known_roles(folders)));
  return nullptr;
}

std::optional<YamlNode> RoleFiles::read(const fs::path& file, const YamlNode& name) {
  const SourcePtr source = read_source(file, name.where(), diagnostics_);
  std::optional<YamlNode> role = source ? parse_yaml(source, diagnostics_) : std::nullopt;
  if (!role) return std::nullopt;
  if (role->kind != YamlNode::Kind::map) {
    diagnostics_.error(role->where(), "E0403",
                       fmt::format("invalid agent file: expected a map, found {}", described(role->kind)));
    return std::nullopt;
  }
  if (const YamlEntry* again = role->entry("use")) {
    diagnostics_.error(again->key.where(), "E0505", "an agent file cannot use another");
    return std::nullopt;
  }
  expand_short_forms(*role, format_agent());
  return role;
}

}  // namespace baton
