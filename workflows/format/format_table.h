// SPDX-License-Identifier: Apache-2.0
// The one table of the workflow format: every key with its type, default and meaning. The parser's checks, the JSON
// Schema for editors and the reference page (docs/yaml.md) all come from it.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workflows/format/diagnostics.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

struct FormatType {
  enum class Kind : std::uint8_t {
    any,     // any YAML
    string,  // ${env:...} is resolved
    prompt,  // text with {{ placeholders }}
    scalar,  // string, number or boolean, kept as text; may hold ${secret:...}
    id,      // [a-z][a-z0-9_]*
    boolean,
    integer,
    number,
    duration,  // 30s
    size,      // 4GiB
    choice,    // one of `words`
    object,    // a map with the keys of the table's object `name`
    list,
    map,     // its values are `of[0]`; the keys of a map are ids, unless free_keys
    either,  // one of `of`, told apart by their YAML shape
  };
  Kind kind = Kind::any;
  std::string name;
  std::vector<std::string> words;
  std::vector<FormatType> of;
  double low = 0, high = 0;  // bounds of an integer or number, inclusive
  bool above_low = false;    // `low` itself is not allowed; of a duration: 0 is not, `none` is
  bool free_keys = false;    // a map's keys are any names
  std::string short_for;     // for either: a scalar is short for an object with this key
};

struct FormatKey {
  std::string object;  // "agent"; "" is the file itself
  std::string key;
  FormatType type;
  bool required = false;
  std::string default_text;
  std::string description;
  std::vector<std::string> unless = {};  // other keys that may stand in place of a required one
};

/// All keys, grouped by object, the file's own first.
std::span<const FormatKey> format_keys();
/// The keys that the product accepts, also in a program with the laboratory (engine/registry.h).
std::span<const FormatKey> product_format_keys();

/// Describes an object for the reference page ("agent" -> "An agent: ...").
std::string_view format_object_title(std::string_view object);

/// "an integer from 1 to 5", "one of 'a', 'b'", "a list of ids": what a type expects, for messages and the reference.
std::string described(const FormatType& type);

/// Checks `node` against a type and resolves ${env:...} in it. What is wrong goes to `diagnostics`, and its nodes are
/// marked broken. `path` names the node ("agents.judge"), `where` is the place of its key.
void check_format(YamlNode& node, const FormatType& type, const std::string& path, const SourceLocation& where,
                  Diagnostics& diagnostics);

/// The type of the whole file, and of an agent file.
FormatType format_file();
FormatType format_agent();

/// Writes the short forms in `node` out as the objects that they are short for, as far as its shape allows.
void expand_short_forms(YamlNode& node, const FormatType& type);

/// True for keys that every map ignores ("x-...").
bool is_extension_key(std::string_view key);
bool is_id(std::string_view text);

/// Says as a help text where an unknown key of an object has moved to; empty: nowhere.
std::string moved_key_help(std::string_view object_name, std::string_view key);

}  // namespace baton

namespace baton::format_types {

// The types that the table of the workflow format is written with, and the sections that stand in files of their own.
// For format_table*.cpp only.

using Kind = FormatType::Kind;

inline constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

inline FormatType of_kind(Kind kind) {
  FormatType type;
  type.kind = kind;
  return type;
}
inline FormatType any() { return of_kind(Kind::any); }
inline FormatType string() { return of_kind(Kind::string); }
inline FormatType prompt() { return of_kind(Kind::prompt); }
inline FormatType scalar() { return of_kind(Kind::scalar); }
inline FormatType id() { return of_kind(Kind::id); }
inline FormatType boolean() { return of_kind(Kind::boolean); }
inline FormatType duration() { return of_kind(Kind::duration); }
inline FormatType time_limit() {
  FormatType type = duration();
  type.above_low = true;
  return type;
}
inline FormatType size() { return of_kind(Kind::size); }
inline FormatType integer(double low, double high = kNoLimit) {
  FormatType type = of_kind(Kind::integer);
  type.low = low;
  type.high = high;
  return type;
}
inline FormatType number(double low, double high) {
  FormatType type = integer(low, high);
  type.kind = Kind::number;
  return type;
}
inline FormatType number_above(double low, double high) {
  FormatType type = number(low, high);
  type.above_low = true;
  return type;
}
inline FormatType choice(std::vector<std::string> words) {
  FormatType type = of_kind(Kind::choice);
  type.words = std::move(words);
  return type;
}
inline FormatType object(std::string name) {
  FormatType type = of_kind(Kind::object);
  type.name = std::move(name);
  return type;
}
inline FormatType list(FormatType element) {
  FormatType type = of_kind(Kind::list);
  type.of.push_back(std::move(element));
  return type;
}
inline FormatType map(FormatType element) {
  FormatType type = list(std::move(element));
  type.kind = Kind::map;
  return type;
}
/// A map whose keys are names of something outside, of variables for example.
inline FormatType names_to(FormatType element) {
  FormatType type = map(std::move(element));
  type.free_keys = true;
  return type;
}
inline FormatType either(std::vector<FormatType> alternatives) {
  FormatType type = of_kind(Kind::either);
  type.of = std::move(alternatives);
  return type;
}

/// An object, or a scalar that is short for it with one key.
inline FormatType object_or(FormatType scalar_type, std::string name, std::string key) {
  FormatType type = either({std::move(scalar_type), object(std::move(name))});
  type.short_for = std::move(key);
  return type;
}

FormatType relay_method(bool laboratory);

/// The sections of `relay`.
std::vector<FormatKey> relay_keys(bool laboratory);

}  // namespace baton::format_types
