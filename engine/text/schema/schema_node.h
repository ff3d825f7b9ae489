// SPDX-License-Identifier: Apache-2.0
// SchemaNode: one schema of a document as it was read. The check and the grammar work from it. For .cpp files only.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/text/pattern.h"

namespace baton {

/// Types of JSON as bits; a number is an integer, too, if it has no fraction.
using SchemaTypes = std::uint8_t;
inline constexpr SchemaTypes kNullType = 1, kBooleanType = 2, kIntegerType = 4, kNumberType = 8, kStringType = 16,
                             kArrayType = 32, kObjectType = 64, kAnyType = 127;
inline constexpr std::pair<const char*, SchemaTypes> kSchemaTypes[] = {
    {"null", kNullType},     {"boolean", kBooleanType}, {"integer", kIntegerType}, {"number", kNumberType},
    {"string", kStringType}, {"array", kArrayType},     {"object", kObjectType}};

/// A value that a schema lists.
struct SchemaValue {
  nlohmann::json value;
  std::string text;  // on one line, its members in the author's order
};

/// A pattern of ECMAScript, which is searched for.
struct SchemaPattern {
  std::string text;
  Pattern compiled;
};

/// Plain data; nodes refer to one another, in cycles too.
struct SchemaNode {
  using Link = const SchemaNode*;  // null: there is none
  struct Dependent {
    std::string name;                   // if the value has this member ...
    std::vector<std::string> required;  // ... it must have these
    Link schema = nullptr;              // ... and fulfil this
  };

  std::string pointer;     // JSON pointer of the schema in its document
  bool never = false;      // the schema `false`
  SchemaTypes types = 0;   // 0: 'type' is missing
  std::string type_names;  // in the author's order, as messages have them

  std::optional<std::vector<SchemaValue>> values;  // 'enum'
  std::optional<SchemaValue> constant;

  std::optional<long double> minimum, maximum, above, below;  // above, below: exclusive
  std::optional<nlohmann::json> multiple_of;                  // a number above 0

  std::optional<std::uint64_t> min_length, max_length;
  std::optional<SchemaPattern> pattern;
  std::string format;

  std::vector<Link> prefix;  // of the first items
  Link items = nullptr;      // of the items behind those
  std::optional<std::uint64_t> min_items, max_items;
  bool unique = false;
  Link contains = nullptr;
  std::optional<std::uint64_t> min_contains, max_contains;

  std::vector<std::pair<std::string, Link>> properties;  // in the author's order
  std::map<std::string, Link> by_name;
  std::vector<std::pair<SchemaPattern, Link>> patterns;  // 'patternProperties'
  Link others = nullptr;                                 // 'additionalProperties'
  Link names = nullptr;                                  // 'propertyNames'
  std::vector<std::string> required;
  bool names_members = false;  // 'properties', 'patternProperties' or 'required' is there, perhaps empty
  std::optional<std::uint64_t> min_properties, max_properties;
  std::vector<Dependent> dependents;

  Link reference = nullptr;
  std::vector<Link> all_of, any_of, one_of;
  Link excluded = nullptr;  // 'not'
  Link condition = nullptr, then = nullptr, otherwise = nullptr;

  Link property(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  }
};

/// The types that a node's keywords speak of; 0: none.
SchemaTypes implied_types(const SchemaNode& node);

/// The types that a value has: 1.0 is a number and an integer.
SchemaTypes types_of_value(const nlohmann::json& value);

/// True for an integer, as the standard sees it: 1.0 is one.
bool is_whole(const nlohmann::json& value);

/// Checks values against nodes. Every function returns the first error, or an empty text, and throws
/// std::runtime_error when all together take too many steps.
class SchemaCheck {
 public:
  /// `bytes`: of the text that is checked.
  explicit SchemaCheck(std::size_t bytes);

  std::string check(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer, int depth = 0);

  /// What the node itself says of the value, without the schemas that hold for the same value.
  std::string check_own(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer, int depth);

  /// What the node itself says of a member.
  std::string check_member(const std::string& name, const nlohmann::json& member, const SchemaNode& node,
                           const std::string& pointer, int depth);

 private:
  std::string check_combined(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer,
                             int depth);
  std::string check_alternatives(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer,
                                 int depth);
  std::string check_string(const std::string& value, const SchemaNode& node, const std::string& pointer);
  std::string check_array(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer, int depth);
  std::string check_contains(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer,
                             int depth);
  std::string check_unique(const nlohmann::json& value, const std::string& pointer);
  std::string check_object(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer, int depth);
  std::string check_dependents(const nlohmann::json& value, const SchemaNode& node, const std::string& pointer,
                               int depth);

  Effort effort_;
};

// Formats of strings: what a text must be, for the check and for the grammar.

struct StringFormat {
  std::string_view name;
  const char* regex;  // whole texts, for the grammar: what it holds is always of the format; null: it is only checked
  bool (*holds)(std::string_view text, const char* regex, Effort& effort);
};

/// Null for a format that is not enforced.
const StringFormat* string_format(std::string_view name);

}  // namespace baton
