// SPDX-License-Identifier: Apache-2.0
// Validation of an agent's output against a JSON Schema, with the subset of draft-07 that docs/yaml.md lists.
#pragma once

#include <string>
#include <string_view>

namespace baton {

/// Returns the first error of `text` as JSON of this schema, with its place as a JSON pointer; empty when the text is
/// valid. The schema must have passed check_json_schema.
std::string check_json(std::string_view text, const std::string& schema);

/// Returns the first error or unsupported keyword of the schema itself; empty when there is none.
std::string check_json_schema(const std::string& schema);

/// The same for the schema of a call's arguments, which has to be that of an object.
std::string check_parameters(const std::string& schema);

}  // namespace baton
