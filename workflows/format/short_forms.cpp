// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "workflows/format/format_table.h"

namespace baton {
namespace {

using Kind = FormatType::Kind;

/// "text" -> {key: "text"}, both where the text stands.
void wrap(YamlNode& node, const std::string& key) {
  YamlEntry entry;
  entry.key.kind = YamlNode::Kind::string;
  entry.key.text = key;
  entry.key.source = node.source;
  entry.key.offset = node.offset;
  entry.key.length = node.length;
  YamlNode map = entry.key;
  map.kind = YamlNode::Kind::map;
  map.text.clear();
  entry.value = std::move(node);
  map.entries.push_back(std::move(entry));
  node = std::move(map);
}

}  // namespace

void expand_short_forms(YamlNode& node, const FormatType& type) {
  if (type.kind == Kind::either) {
    if (!type.short_for.empty() && node.is_scalar() && node.kind != YamlNode::Kind::null) wrap(node, type.short_for);
    const bool is_map = node.kind == YamlNode::Kind::map;
    const auto object =
        std::find_if(type.of.begin(), type.of.end(), [](const FormatType& t) { return t.kind == Kind::object; });
    if (is_map && object != type.of.end()) expand_short_forms(node, *object);
    return;
  }
  if (type.kind == Kind::list) {
    for (YamlNode& item : node.items) expand_short_forms(item, type.of[0]);
  } else if (type.kind == Kind::map) {
    for (YamlEntry& entry : node.entries) expand_short_forms(entry.value, type.of[0]);
  } else if (type.kind == Kind::object) {
    for (const FormatKey& key : format_keys()) {
      YamlEntry* entry = key.object == type.name ? node.entry(key.key) : nullptr;
      if (entry != nullptr) expand_short_forms(entry->value, key.type);
    }
  }
}

}  // namespace baton
