// SPDX-License-Identifier: Apache-2.0
// Schema: a JSON Schema (the subset of draft-07 that docs/yaml.md lists), read once. It is then used to check an
// answer, or compiled into a grammar that an answer must follow.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// A mistake at one place of a schema.
struct SchemaMistake {
  std::vector<std::string> path;      // names and indices from the root to the place
  std::string text;                   // "/properties/n/type: expected a type of JSON (...)"
  std::string found;                  // an unknown word, or empty
  std::vector<std::string> expected;  // the words that could stand there
};

/// Immutable and safe from any thread; copies share what was read.
class Schema {
 public:
  /// Never throws for its text: mistakes() has the reason why it cannot be read.
  explicit Schema(std::string_view text);

  /// Returns the errors and unsupported keywords, at most 16. Empty: the schema is valid.
  std::vector<SchemaMistake> mistakes() const;

  /// Returns the root, whose maps are sorted by key. Throws JsonError if the text is not JSON or exceeds a limit.
  const nlohmann::json& root() const;

  /// Returns the root in the order in which the author wrote the keys. Throws JsonError as root() does, and for a
  /// repeated key.
  nlohmann::ordered_json root_in_order() const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

/// Returns true for keywords that constrain nothing.
bool is_annotation(const std::string& keyword);

/// Returns one schema of what fulfils both schemas that must hold together (in allOf, or next to anyOf). Neither is a
/// $ref. Throws ConstraintError, with `pointer` as the place, if no single schema says that.
nlohmann::ordered_json merged_schema(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                                     const std::string& pointer);

/// Returns the name of the definition that a valid "$ref" means.
std::string definition_name(const std::string& reference);

/// Limit of "$ref" and of nesting together, for the check and for the grammar.
inline constexpr int kMaxSchemaDepth = 64;

/// Returns the first error of `text` as JSON of this schema, with its place as a JSON pointer. Empty: the text is
/// valid. The schema must have no mistakes.
std::string check_json(std::string_view text, const Schema& schema);
std::string check_json(std::string_view text, const std::string& schema);

std::vector<SchemaMistake> json_schema_mistakes(const std::string& schema);

/// The mistakes of a schema of a call's arguments, which must be that of an object.
std::vector<SchemaMistake> parameters_mistakes(const std::string& schema);

/// The first mistake of either. Empty: there is none.
std::string check_json_schema(const std::string& schema);
std::string check_parameters(const std::string& schema);

}  // namespace baton
