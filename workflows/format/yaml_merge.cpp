// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <unordered_map>

#include "engine/base/seeded_hash.h"
#include "workflows/format/format_table.h"
#include "workflows/format/values.h"

namespace baton {
namespace {

constexpr std::size_t kMaxChainFiles = 16;

std::filesystem::path real_path(const std::filesystem::path& file) {
  std::error_code code;
  auto found = std::filesystem::weakly_canonical(file, code);
  return code ? file.lexically_normal() : found;
}

/// Follows `extends`; `chain` holds the files on the way here.
std::optional<YamlNode> load_chain(const SourcePtr& source, std::vector<std::filesystem::path> chain,
                                   Diagnostics& diagnostics) {
  std::optional<YamlNode> child = parse_yaml(source, diagnostics);
  if (!child || child->kind != YamlNode::Kind::map) return child;
  expand_short_forms(*child, format_file());  // so that {dtype: f32} can be merged into a path
  YamlEntry* extends = child->entry("extends");
  if (extends == nullptr || extends->value.kind != YamlNode::Kind::string) return child;

  const SourceLocation where = extends->value.where();
  const Resolved name = resolve_environment(extends->value.text, Secrets::refuse);
  if (!name.error.empty()) {
    diagnostics.error(where, name.code, name.error);
    return std::nullopt;
  }
  const std::filesystem::path file = (source->folder() / name.text).lexically_normal();
  if (std::find(chain.begin(), chain.end(), real_path(file)) != chain.end()) {
    diagnostics.error(where, "E0505", fmt::format("'{}' extends itself", file.string()));
    return std::nullopt;
  }
  if (chain.size() == kMaxChainFiles) {
    diagnostics.error(where, "E0505",
                      fmt::format("a chain of more than {} files that extend each other", kMaxChainFiles));
    return std::nullopt;
  }
  chain.push_back(real_path(file));
  const SourcePtr base_source = read_source(file, where, diagnostics);
  if (!base_source) return std::nullopt;
  std::optional<YamlNode> base = load_chain(base_source, std::move(chain), diagnostics);
  if (!base) return std::nullopt;
  if (base->kind != YamlNode::Kind::map) {
    diagnostics.error(
        where, "E0505",
        fmt::format("'{}' cannot be extended: expected a map, found {}", file.string(), described(base->kind)));
    return std::nullopt;
  }
  std::erase_if(child->entries, [](const YamlEntry& entry) { return entry.key.text == "extends"; });
  return merged(std::move(*base), std::move(*child));
}

/// The element of a list that a part of a path names.
YamlNode* element(YamlNode& list, std::string_view name) {
  if (const auto index = integer_of(name)) {
    const bool inside = *index >= 0 && static_cast<std::size_t>(*index) < list.items.size();
    return inside ? &list.items[static_cast<std::size_t>(*index)] : nullptr;
  }
  for (const char* key : {"id", "agent"}) {
    for (YamlNode& item : list.items) {
      const YamlEntry* entry = item.entry(key);
      if (entry != nullptr && entry->value.text == name) return &item;
    }
  }
  const auto same = std::find_if(list.items.begin(), list.items.end(),
                                 [&](const YamlNode& i) { return i.is_scalar() && i.text == name; });
  return same == list.items.end() ? nullptr : &*same;
}

/// True for `agents`, `models`, ...: what stands below one of their names is a part of something that the file
/// declares.
bool is_map_of_objects(std::string_view key) {
  const auto keys = format_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const FormatKey& known) {
    if (!known.object.empty() || known.key != key || known.type.kind != FormatType::Kind::map) return false;
    const FormatType::Kind of = known.type.of.front().kind;
    return of == FormatType::Kind::object || of == FormatType::Kind::either;
  });
}

}  // namespace

YamlNode merged(YamlNode base, YamlNode child) {
  if (base.kind != YamlNode::Kind::map || child.kind != YamlNode::Kind::map) return child;
  std::unordered_map<std::string, std::size_t, SeededHash> places;
  for (std::size_t i = 0; i < base.entries.size(); ++i) places.emplace(base.entries[i].key.text, i);
  std::vector<bool> removed(base.entries.size(), false);
  for (YamlEntry& entry : child.entries) {
    const auto found = places.find(entry.key.text);
    if (found == places.end()) {
      base.entries.push_back(std::move(entry));
    } else if (entry.value.kind == YamlNode::Kind::null) {
      removed[found->second] = true;
    } else {
      YamlEntry& old = base.entries[found->second];
      old.value = merged(std::move(old.value), std::move(entry.value));
      old.key = std::move(entry.key);
    }
  }
  child.entries.clear();
  for (std::size_t i = 0; i < base.entries.size(); ++i) {
    if (i >= removed.size() || !removed[i]) child.entries.push_back(std::move(base.entries[i]));
  }
  return child;
}

std::optional<YamlNode> load_tree(const SourcePtr& source, Diagnostics& diagnostics) {
  return load_chain(source, {real_path(source->name())}, diagnostics);
}

void set_value(YamlNode& root, const std::string& path, const std::string& value, Diagnostics& diagnostics) {
  const std::string name = "--set " + path;
  const auto fail = [&](std::string message) { diagnostics.error({name, 0, 0, 1}, "E0405", std::move(message)); };
  if (path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos) {
    return fail("a part of the path is empty");
  }
  const SourcePtr source = make_source(name, root.source->folder(), value, diagnostics);
  if (!source) return;
  std::optional<YamlNode> parsed = parse_yaml(source, diagnostics);
  if (!parsed) return;

  YamlNode* node = &root;
  const std::string top = path.substr(0, path.find('.'));
  for (std::size_t at = 0, depth = 0; at <= path.size(); ++depth) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    at = dot + 1;
    if (node->kind == YamlNode::Kind::list) {
      node = element(*node, part);
      if (node == nullptr) return fail(fmt::format("the list has no '{}'", part));
      continue;
    }
    if (node->kind == YamlNode::Kind::null) node->kind = YamlNode::Kind::map;
    if (node->kind != YamlNode::Kind::map) {
      return fail(fmt::format("'{}' cannot be set: expected a map, found {}", part, described(node->kind)));
    }
    if (YamlEntry* entry = node->entry(part)) {
      node = &entry->value;
      continue;
    }
    if (depth == 1 && at <= path.size() && is_map_of_objects(top)) {
      std::vector<std::string> names;
      for (const YamlEntry& entry : node->entries) names.push_back(entry.key.text);
      const std::string hint = names.empty() ? "the file declares none" : diagnostics.suggestion(part, names);
      return fail(fmt::format("{} has no '{}'; {}", top, part,
                              hint.empty() ? fmt::format("the file has: {}", fmt::join(names, ", ")) : hint));
    }
    YamlEntry added;
    added.key.kind = YamlNode::Kind::string;
    added.key.text = part;
    added.key.source = added.value.source = source;
    node->entries.push_back(std::move(added));
    node = &node->entries.back().value;
  }
  *node = std::move(*parsed);
  expand_short_forms(root, format_file());
}

}  // namespace baton
