// SPDX-License-Identifier: Apache-2.0
// The passes: tree, format, names, topology, turns, forecast. Mistakes of all passes come together, but a pass is left
// out where the one before it failed in a way that would make its errors noise.
#include "workflows/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "agents/tool.h"
#include "workflows/format/format_table.h"
#include "workflows/format/role_file.h"
#include "workflows/format/spec_reader.h"
#include "workflows/format/yaml_merge.h"
#include "workflows/plan/plan_builder.h"

namespace baton {
namespace {

constexpr std::size_t kMaxNames = 1000;  // of agents, inputs and models each

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

/// What the reader of files checks, for a spec that a program made.
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
  if (spec.models.empty()) diagnostics.error(spec.topology.where, "E0402", "no model is declared");
}

/// A method that hands KV over needs an agent whose KV is here; with one, the others do without.
void check_method(const WorkflowSpec& spec, const std::vector<PlannedTurn>& turns, Diagnostics& diagnostics) {
  const Method& method = *spec.relay.method;
  const auto here = [](const PlannedTurn& turn) { return turn.has_prompt() && !turn.served; };
  if (!method.segments || decides(method) || turns.empty() || std::any_of(turns.begin(), turns.end(), here)) return;
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
