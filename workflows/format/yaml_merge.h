// SPDX-License-Identifier: Apache-2.0
// Trees over trees: `extends`, `use` and --set.
#pragma once

#include <string>

#include "workflows/format/yaml_tree.h"

namespace baton {

/// `child` over `base`: maps are merged key by key, anything else is replaced; a null in `child` removes the key.
YamlNode merged(YamlNode base, YamlNode child);

/// The tree of a file with everything that it extends. Empty, with errors, when one of the files cannot be used.
std::optional<YamlNode> load_tree(const SourcePtr& source, Diagnostics& diagnostics);

/// Sets "a.b.c" to a value written as YAML. A list is entered by index, or by the id or agent of an element.
void set_value(YamlNode& root, const std::string& path, const std::string& value, Diagnostics& diagnostics);

}  // namespace baton
