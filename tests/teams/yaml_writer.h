// SPDX-License-Identifier: Apache-2.0
// Writes a tree as YAML, with all texts in quotes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace baton::test {

using Yaml = nlohmann::ordered_json;

inline std::string written(const Yaml& node, std::size_t indent = 0) {
  if (!node.is_structured() || node.empty()) return " " + node.dump() + "\n";
  const std::string blanks(indent, ' ');
  std::string out = "\n";
  for (const auto& [key, value] : node.items()) {
    out += blanks + (node.is_array() ? "-" : key + ":") + written(value, indent + 2);
  }
  return out;
}

}  // namespace baton::test
