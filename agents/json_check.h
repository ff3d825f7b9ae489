// SPDX-License-Identifier: Apache-2.0
// Checks of an agent's output against a JSON Schema: the part of draft-07 that docs/yaml.md lists.
#pragma once

#include <string>
#include <string_view>

namespace baton {

/// What is wrong with `text` as JSON of this schema, with the place as a JSON pointer; empty: nothing.
/// The schema must have passed check_json_schema.
std::string check_json(std::string_view text, const std::string& schema);

/// What is wrong with the schema itself, or which keyword of it is not supported; empty: nothing.
std::string check_json_schema(const std::string& schema);

}  // namespace baton
