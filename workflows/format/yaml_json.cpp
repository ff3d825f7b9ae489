// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_json.h"

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const YamlNode& node) {
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
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case YamlNode::Kind::map: {
      Json map = Json::object();
      for (const YamlEntry& entry : node.entries) map[entry.key.text] = json_of(entry.value);
      return map;
    }
  }
  return node.text;
}

}  // namespace

std::string to_json(const YamlNode& node) { return json_of(node).dump(); }

}  // namespace baton
