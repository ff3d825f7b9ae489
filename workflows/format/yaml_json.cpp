// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_json.h"

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return nullptr;
    case YamlNode::Kind::boolean:
      return node.text[0] == 't' || node.text[0] == 'T';
    case YamlNode::Kind::integer:
      if (const auto value = integer_of(node.text)) return *value;
      break;
    case YamlNode::Kind::number:
      if (const auto value = number_of(node.text)) return *value;
      break;
    case YamlNode::Kind::string:
      break;
    case YamlNode::Kind::list: {
      OrderedJson list = OrderedJson::array();
      for (const YamlNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case YamlNode::Kind::map: {
      OrderedJson map = OrderedJson::object();
      for (const YamlEntry& entry : node.entries) map[entry.key.text] = json_of(entry.value);
      return map;
    }
  }
  return node.text;
}

/// The key or item that the mistake names: the key, where that is the word which is wrong, otherwise its value.
SourceLocation place_of(const YamlNode& root, const SchemaMistake& mistake) {
  const YamlNode* node = &root;
  SourceLocation where = node->where();
  for (const std::string& name : mistake.path) {
    if (node->kind == YamlNode::Kind::list) {
      const auto index = integer_of(name);
      if (!index || *index < 0 || static_cast<std::size_t>(*index) >= node->items.size()) return where;
      node = &node->items[static_cast<std::size_t>(*index)];
      where = node->where();
      continue;
    }
    const YamlEntry* entry = node->entry(name);
    if (entry == nullptr) return where;
    where = mistake.found == name || !entry->value.is_scalar() ? entry->key.where() : entry->value.where();
    node = &entry->value;
  }
  return where;
}

}  // namespace

void report_schema_mistakes(const YamlNode& node, const std::vector<SchemaMistake>& mistakes, const std::string& owner,
                            Diagnostics& diagnostics) {
  for (const SchemaMistake& mistake : mistakes)
    diagnostics.error(place_of(node, mistake), "E0408", owner + ": " + mistake.text,
                      diagnostics.suggestion(mistake.found, mistake.expected));
}

std::string to_json(const YamlNode& node) { return json_of(node).dump(); }

}  // namespace baton
