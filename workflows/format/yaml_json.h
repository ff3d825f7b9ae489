// SPDX-License-Identifier: Apache-2.0
// A YAML tree as JSON text: numbers and booleans keep their type.
#pragma once

#include <string>

#include "workflows/format/yaml_tree.h"

namespace baton {

/// Keys of `x-` included; integers beyond 64 bits and .inf/.nan become strings.
std::string to_json(const YamlNode& node);

}  // namespace baton
