// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/role_file.h"

#include <fmt/format.h>

#include <system_error>

#include "workflows/format/format_table.h"
#include "workflows/format/yaml_merge.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

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

void apply_role_file(YamlNode& agent, std::span<const fs::path> role_folders, Diagnostics& diagnostics) {
  YamlEntry* use = agent.entry("use");
  if (use == nullptr || use->value.kind != YamlNode::Kind::string) return;  // the format check reports this
  const YamlNode name = use->value;
  const auto give_up = [&] { agent.broken = true; };
  if (!is_id(name.text)) {
    diagnostics.error(name.where(), "E0406",
                      fmt::format("'{}' is not an id; expected the name of an agent file", name.text));
    return give_up();
  }

  const std::vector<fs::path> folders = folders_for(name.source->folder(), role_folders);
  fs::path file;
  for (const fs::path& folder : folders) {
    std::error_code code;
    if (file.empty() && fs::is_regular_file(folder / (name.text + ".yaml"), code))
      file = folder / (name.text + ".yaml");
  }
  if (file.empty()) {
    diagnostics.error(name.where(), "E0501",
                      fmt::format("no agent file '{}.yaml' next to this file or in a folder of roles", name.text),
                      diagnostics.suggestion(name.text, known_roles(folders)));
    return give_up();
  }
  const SourcePtr source = read_source(file, name.where(), diagnostics);
  std::optional<YamlNode> role = source ? parse_yaml(source, diagnostics) : std::nullopt;
  if (!role) return give_up();
  if (role->kind != YamlNode::Kind::map) {
    diagnostics.error(role->where(), "E0403",
                      fmt::format("invalid agent file: expected a map, found {}", described(role->kind)));
    return give_up();
  }
  if (const YamlEntry* again = role->entry("use")) {
    diagnostics.error(again->key.where(), "E0505", "an agent file cannot use another");
    return give_up();
  }
  expand_short_forms(*role, format_agent());
  std::erase_if(agent.entries, [](const YamlEntry& entry) { return entry.key.text == "use"; });
  agent = merged(std::move(*role), std::move(agent));
}

}  // namespace baton
