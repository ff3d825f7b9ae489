// SPDX-License-Identifier: Apache-2.0
// A YAML tree as JSON text: numbers and booleans keep their type. Mistakes in a schema at their places in the tree.
#pragma once

#include <string>
#include <vector>

#include "agents/json_check.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

/// Keys of `x-` included; integers beyond 64 bits and .inf/.nan, which a checked tree does not hold, become strings.
std::string to_json(const YamlNode& node);

/// Reports each mistake in the schema that `node` holds. `owner` begins the messages ("agent 'judge': output schema").
void report_schema_mistakes(const YamlNode& node, const std::vector<SchemaMistake>& mistakes, const std::string& owner,
                            Diagnostics& diagnostics);

}  // namespace baton
