// SPDX-License-Identifier: Apache-2.0
// Schema: a JSON Schema (drafts 7 and 2020-12, as docs/yaml.md says), read once. It is then used to check an answer, or
// compiled into a grammar that an answer must follow.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct SchemaNode;

/// A mistake at one place of a schema.
struct SchemaMistake {
  std::vector<std::string> path;      // names and indices from the root to the place
  std::string text;                   // "/properties/n/type: expected a type of JSON (...)"
  std::string found;                  // an unknown word, or empty
  std::vector<std::string> expected;  // the words that could stand there
};

/// Keywords that no draft has.
enum class UnknownKeywords : unsigned char {
  refused,  // in a schema of the workflow's author they are most likely misspelt
  ignored,  // as the standard says
};

/// Immutable and safe from any thread; copies share what was read.
class Schema {
 public:
  /// Never throws for its text: mistakes() has the reason why it cannot be read.
  explicit Schema(std::string_view text);

  /// Returns the errors and unsupported keywords, at most 16. Empty: the schema is valid.
  std::vector<SchemaMistake> mistakes(UnknownKeywords unknown = UnknownKeywords::refused) const;

  /// Returns what was read, with all references resolved. Throws JsonError if the text is not JSON or exceeds a limit.
  /// The schema must have no mistakes but unknown keywords.
  const SchemaNode& root() const;

  /// Returns how many schemas hold for one value at most, one within another: by references and alternatives.
  int height() const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

/// Limit of references and alternatives within one another that hold for one value.
inline constexpr int kMaxSchemaHeight = 64;

/// Limit of the same and of values within one another together, for the check and for the grammar.
inline constexpr int kMaxSchemaDepth = 512;

/// Returns the first error of `text` as JSON of this schema, with its place as a JSON pointer. Empty: the text is
/// valid. The schema must have no mistakes but unknown keywords.
std::string check_json(std::string_view text, const Schema& schema);
std::string check_json(std::string_view text, const std::string& schema);

/// The same of `value`, JSON, as the member `name` of an object of this schema, by what the schema says of its members
/// itself and by references and 'allOf'.
std::string check_member(const std::string& name, std::string_view value, const Schema& schema);

std::vector<SchemaMistake> json_schema_mistakes(const std::string& schema);

/// The mistakes of a schema of a call's arguments, which must be that of an object.
std::vector<SchemaMistake> parameters_mistakes(const std::string& schema,
                                               UnknownKeywords unknown = UnknownKeywords::refused);

/// The first mistake of either. Empty: there is none.
std::string check_json_schema(const std::string& schema);
std::string check_parameters(const std::string& schema, UnknownKeywords unknown = UnknownKeywords::refused);

}  // namespace baton
