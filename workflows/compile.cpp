// SPDX-License-Identifier: Apache-2.0
// The passes: tree, format, names, topology, turns, forecast. Mistakes of all passes come together, but a pass is left
// out if the one before it failed in a way that would make its errors noise.
#include "workflows/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>

#include "agents/tools/tool.h"
#include "workflows/format/format_table.h"
#include "workflows/format/readers.h"
#include "workflows/format/yaml_tree.h"
#include "workflows/plan/plan.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRoleNodes = 500'000;  // in the agent files of all agents

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
  /// Null, with errors, if the agent cannot use the file that `name` stands for.
  const YamlNode* find(const YamlNode& name);
  std::optional<YamlNode> read(const std::filesystem::path& file, const YamlNode& name);

  std::span<const std::filesystem::path> role_folders_;
  Diagnostics& diagnostics_;
  std::map<std::filesystem::path, std::optional<YamlNode>> files_;  // nothing: a file that cannot be used
  std::size_t nodes_ = 0;                                           // in all agent files that were applied
};

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

constexpr std::size_t kMaxNames = 1000;  // for agents, inputs and models each

/// A file of another version is not held against the keys of this one.
bool is_other_version(const YamlNode& root, Diagnostics& diagnostics) {
  const YamlEntry* version = root.entry("version");
  if (version == nullptr || version->value.kind != YamlNode::Kind::integer || version->value.text == "1") return false;
  diagnostics.error(version->value.where(), "E0404",
                    fmt::format("unknown version {} of the format", version->value.text),
                    "this program reads version 1");
  return true;
}

/// Later passes look at each of them for each of them.
void check_counts(const YamlNode& root, Diagnostics& diagnostics) {
  for (const char* key : {"agents", "inputs", "models"}) {
    const YamlEntry* entry = root.entry(key);
    if (entry == nullptr || entry->value.entries.size() <= kMaxNames) continue;
    diagnostics.error(entry->key.where(), "E0308",
                      fmt::format("{} {}; expected at most {}", entry->value.entries.size(), key, kMaxNames));
    diagnostics.fail();
  }
}

/// Only a model that the file declares has a path that can be replaced.
void set_model(YamlNode& root, const std::string& name, const std::string& path, Diagnostics& diagnostics) {
  YamlEntry* models = root.entry("models");
  std::vector<std::string> known;
  if (models != nullptr) {
    for (const YamlEntry& model : models->value.entries) known.push_back(model.key.text);
  }
  if (std::find(known.begin(), known.end(), name) != known.end())
    return set_value(root, fmt::format("models.{}.path", name), nlohmann::json(path).dump(), diagnostics);
  const std::string near = diagnostics.suggestion(name, known);
  diagnostics.error(models != nullptr ? models->key.where() : root.where(), "E0202",
                    fmt::format("unknown model '{}' in the given model paths", name),
                    !near.empty()   ? near
                    : known.empty() ? "the file has none"
                                    : fmt::format("the file has: {}", fmt::join(known, ", ")));
}

/// A topology that was not read as it was meant would give errors about placeholders that are right.
bool topology_is_sound(const Diagnostics& diagnostics) {
  for (const Diagnostic& item : diagnostics.items()) {
    const bool of_format = item.code >= "E0401" && item.code <= "E0406";
    if (of_format || item.code == "E0201" || (item.code.starts_with("E03") && item.code != "E0305")) return false;
  }
  return true;
}

/// Checks a spec that a program made, as the reader checks a file.
void check_references(const WorkflowSpec& spec, Diagnostics& diagnostics) {
  const auto want_agent = [&](const std::string& id) {
    if (spec.agent(id) == nullptr)
      diagnostics.error(spec.topology.where, "E0201", fmt::format("unknown agent '{}'", id));
  };
  for (const std::string& id : spec.topology.agents) want_agent(id);
  for (const std::vector<std::string>& layer : spec.topology.layers)
    std::for_each(layer.begin(), layer.end(), want_agent);
  for (const NodeSpec& node : spec.topology.nodes) want_agent(node.agent);
  if (!spec.topology.then.empty()) want_agent(spec.topology.then);
  for (const AgentSpec& agent : spec.agents) {
    const SummarySpec& summary = agent.summary;
    if (!summary.agent.empty()) want_agent(summary.agent);
    const auto is_it = [&](const ModelSpec& model) { return model.name == summary.model; };
    if (!summary.model.empty() && std::none_of(spec.models.begin(), spec.models.end(), is_it))
      diagnostics.error(summary.where, "E0202", fmt::format("unknown model '{}'", summary.model));
  }
  if (spec.models.empty()) diagnostics.error(spec.topology.where, "E0402", "no model is declared");
}

/// A method that hands KV over needs an agent whose KV is here; with one, the others do without.
void check_method(const WorkflowSpec& spec, const std::vector<PlannedTurn>& turns, Diagnostics& diagnostics) {
  const Method& method = *spec.relay.method;
  const auto here = [](const PlannedTurn& turn) { return turn.has_prompt() && !turn.served; };
  if (!hands_over(method) || decides(method) || turns.empty() || std::any_of(turns.begin(), turns.end(), here)) return;
  if (std::none_of(turns.begin(), turns.end(), [](const PlannedTurn& turn) { return turn.served; })) return;
  diagnostics.error(
      spec.relay.where, "E0412",
      fmt::format("relay: method {} hands KV over, and every model is on a server, which keeps its own", method.name),
      "expected auto, lockstep, prefix or full");
}

/// The last passes, for a spec from wherever. `sound`: its topology is as it was meant.
Plan finish(WorkflowSpec spec, bool sound, OutputGrammars& grammars, Diagnostics& diagnostics) {
  std::vector<PlannedTurn> turns;
  if (sound) turns = build_turns(spec, grammars, diagnostics);
  check_method(spec, turns, diagnostics);
  if (!diagnostics.empty()) diagnostics.fail();
  if (spec.outputs.empty() && !turns.empty())
    spec.outputs.push_back({"answer", {{"", fmt::format("agent_{}_current", turns.back().agent), 0}}});
  spec.sources = diagnostics.sources();
  return make_plan(std::make_shared<const WorkflowSpec>(std::move(spec)), std::move(turns));
}

Plan compile_source(const SourcePtr& source, const ReadOptions& options, Diagnostics& diagnostics) {
  std::optional<YamlNode> root = source ? load_tree(source, diagnostics) : std::nullopt;
  if (!root) diagnostics.fail();
  for (const auto& [path, value] : options.set) set_value(*root, path, value, diagnostics);
  for (const auto& [name, path] : options.models) set_model(*root, name, path, diagnostics);
  if (is_other_version(*root, diagnostics)) diagnostics.fail();
  check_counts(*root, diagnostics);
  if (YamlEntry* agents = root->entry("agents")) {
    RoleFiles roles(options.role_folders, diagnostics);
    for (YamlEntry& agent : agents->value.entries) roles.apply(agent.value);
  }
  check_format(*root, format_file(), "", root->where(), diagnostics);
  if (root->kind != YamlNode::Kind::map) diagnostics.fail();

  const ToolRegistry builtins = options.tools == nullptr ? ToolRegistry::with_builtins() : ToolRegistry();
  OutputGrammars grammars;
  WorkflowSpec spec = read_spec(*root, options.tools == nullptr ? builtins : *options.tools, options.absent_tools,
                                grammars, diagnostics);
  check_placeholders(spec, diagnostics);
  return finish(std::move(spec), topology_is_sound(diagnostics), grammars, diagnostics);
}

}  // namespace

Plan compile(const std::filesystem::path& file, const ReadOptions& options) {
  Diagnostics diagnostics;
  const SourcePtr source = read_source(file, {file.string(), 0, 0, 1}, diagnostics);
  if (!source && options.hint) diagnostics.add_hint(options.hint());
  return compile_source(source, options, diagnostics);
}

Plan compile(std::string_view yaml, const std::filesystem::path& file, const ReadOptions& options) {
  Diagnostics diagnostics;
  const SourcePtr source = make_source(file.string(), file.parent_path(), std::string(yaml), diagnostics);
  return compile_source(source, options, diagnostics);
}

Plan compile(WorkflowSpec spec) {
  Diagnostics diagnostics;
  diagnostics.add_sources(spec.sources);
  check_references(spec, diagnostics);
  check_placeholders(spec, diagnostics);
  const bool sound = diagnostics.empty();
  OutputGrammars grammars;
  return finish(std::move(spec), sound, grammars, diagnostics);
}

}  // namespace baton
