// SPDX-License-Identifier: Apache-2.0
// From a file to a checked WorkflowSpec: tree, format, names, topology. All errors of all passes come together, but a
// pass is left out where the one before it failed in a way that would make its errors noise.
#include <fmt/format.h>

#include <memory>

#include "agents/tool.h"
#include "workflows/format/format_table.h"
#include "workflows/format/role_file.h"
#include "workflows/format/spec_reader.h"
#include "workflows/format/yaml_merge.h"
#include "workflows/plan/plan_builder.h"

namespace baton {
namespace {

/// A file of another version is not held against the keys of this one.
bool is_other_version(const YamlNode& root, Diagnostics& diagnostics) {
  const YamlEntry* version = root.entry("version");
  if (version == nullptr || version->value.kind != YamlNode::Kind::integer || version->value.text == "1") return false;
  diagnostics.error(version->value.where(), "E0404",
                    fmt::format("version {} of the format is not known", version->value.text),
                    "this program reads version 1");
  return true;
}

/// A topology that was not read as it was meant would give errors about placeholders that are right.
bool topology_is_sound(const Diagnostics& diagnostics) {
  for (const Diagnostic& item : diagnostics.items()) {
    const bool of_format = item.code >= "E0401" && item.code <= "E0406";
    if (of_format || item.code == "E0201" || (item.code.starts_with("E03") && item.code != "E0305")) return false;
  }
  return true;
}

WorkflowSpec read(const SourcePtr& source, const ReadOptions& options, Diagnostics& diagnostics) {
  std::optional<YamlNode> root = source ? load_tree(source, diagnostics) : std::nullopt;
  if (!root) diagnostics.fail();
  for (const auto& [path, value] : options.set) set_value(*root, path, value, diagnostics);
  if (is_other_version(*root, diagnostics)) diagnostics.fail();
  if (YamlEntry* agents = root->entry("agents")) {
    for (YamlEntry& agent : agents->value.entries) apply_role_file(agent.value, options.role_folders, diagnostics);
  }
  check_format(*root, format_file(), "", root->where(), diagnostics);
  if (root->kind != YamlNode::Kind::map) diagnostics.fail();

  const ToolRegistry builtins = options.tools == nullptr ? ToolRegistry::with_builtins() : ToolRegistry();
  WorkflowSpec spec = read_spec(*root, options.tools == nullptr ? builtins : *options.tools, diagnostics);
  check_placeholders(spec, diagnostics);
  if (topology_is_sound(diagnostics)) {
    const std::vector<PlannedTurn> turns = build_turns(spec, diagnostics);
    if (spec.outputs.empty() && !turns.empty()) {
      spec.outputs.push_back({"answer", {{"", fmt::format("agent_{}_current", turns.back().agent), 0}}});
    }
  }
  if (!diagnostics.empty()) diagnostics.fail();
  spec.sources = diagnostics.sources();
  return spec;
}

}  // namespace

WorkflowSpec load_workflow(const std::filesystem::path& file, const ReadOptions& options) {
  Diagnostics diagnostics;
  const SourcePtr source = read_source(file, {file.string(), 0, 0, 1}, diagnostics);
  return read(source, options, diagnostics);
}

WorkflowSpec parse_workflow(std::string_view yaml, const std::filesystem::path& file, const ReadOptions& options) {
  Diagnostics diagnostics;
  const SourcePtr source = make_source(file.string(), file.parent_path(), std::string(yaml), diagnostics);
  return read(source, options, diagnostics);
}

}  // namespace baton
