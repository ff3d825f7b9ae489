// SPDX-License-Identifier: Apache-2.0
// Validation of an agent's output against a JSON Schema, with the subset of draft-07 that docs/yaml.md lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// Returns the first error of `text` as JSON of this schema, with its place as a JSON pointer; empty when the text is
/// valid. The schema must have passed check_json_schema.
std::string check_json(std::string_view text, const std::string& schema);

/// What is wrong at one place of a schema.
struct SchemaMistake {
  std::vector<std::string> path;      // names and indices from the root to the place
  std::string text;                   // "/properties/n/type: expected a type of JSON (...)"
  std::string found;                  // a word that is none of `expected`, or empty
  std::vector<std::string> expected;  // what it could have been
};

/// The errors and unsupported keywords of a schema, at most 16; empty: it is valid.
std::vector<SchemaMistake> json_schema_mistakes(const std::string& schema);

/// The same for the schema of a call's arguments, which has to be that of an object.
std::vector<SchemaMistake> parameters_mistakes(const std::string& schema);

/// The first of either; empty when there is none.
std::string check_json_schema(const std::string& schema);
std::string check_parameters(const std::string& schema);

}  // namespace baton
