// SPDX-License-Identifier: Apache-2.0
// YAML text as a tree that knows where each node stands. Scalars follow the YAML 1.2 core schema (`no` and `on` are
// strings); anchors and `<<` are resolved; duplicate keys, several documents and tags are errors. See docs/yaml.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/units/numbers.h"
#include "engine/text/schema/schema.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/spec.h"

namespace baton {

struct YamlEntry;

struct YamlNode {
  enum class Kind : std::uint8_t { null, boolean, integer, number, string, list, map };

  Kind kind = Kind::null;
  bool plain = false;              // a scalar without quotes, not a block
  bool broken = false;             // an error has been reported: readers pass over it
  bool has_values = false;         // the scalar's text holds values of variables
  std::string text;                // a scalar's
  std::vector<YamlNode> items;     // a list's
  std::vector<YamlEntry> entries;  // a map's, in the order of the file
  SourcePtr source;
  std::size_t offset = 0;  // where it starts in the source
  std::size_t length = 1;  // bytes to mark

  bool is_scalar() const { return kind != Kind::list && kind != Kind::map; }
  SourceLocation where() const { return source->at(offset, length); }
  /// The place of bytes of a scalar's text if the source has the text unchanged; otherwise the place of the scalar.
  SourceLocation part(std::size_t text_offset, std::size_t length_bytes) const;

  const YamlEntry* entry(std::string_view key) const;
  YamlEntry* entry(std::string_view key);
};

struct YamlEntry {
  YamlNode key;  // always a scalar
  YamlNode value;
};

/// Places in the text of a string that holds placeholders, found in one pass.
class TextPlaces {
 public:
  /// `text` must outlive this.
  explicit TextPlaces(const YamlNode& text);
  /// The place of bytes of the text. Exact except for escapes inside a placeholder. Offsets must ascend.
  SourceLocation at(std::size_t text_offset, std::size_t length_bytes);

 private:
  const YamlNode& text_;
  std::string_view file_;               // up to the end of the text if that is known
  std::size_t passed_ = 0;              // offset in the text, behind the last '{{' that was passed
  std::optional<std::size_t> in_file_;  // where the next '{{' stands; npos: nowhere
};

/// How much a node holds, with all that is in it.
struct TreeSize {
  std::size_t nodes = 0;
  std::size_t bytes = 0;   // bytes of scalar text
  std::size_t levels = 0;  // levels of nesting; a scalar has none
};
TreeSize size_of(const YamlNode& node);

/// Names a kind for messages: "a map", "a list", "an integer".
std::string_view described(YamlNode::Kind kind);

/// Returns the kind of a plain scalar (YAML 1.2 core schema).
YamlNode::Kind kind_of_plain(std::string_view text);

/// Integers also as 0x and 0o; empty when it does not fit.
std::optional<std::int64_t> integer_of(std::string_view text);
std::optional<double> number_of(std::string_view text);

/// Null, with errors in `diagnostics`, when the text is not YAML that Baton reads. An empty text is a null node.
std::optional<YamlNode> parse_yaml(const SourcePtr& source, Diagnostics& diagnostics);

/// `child` over `base`: maps are merged key by key, anything else is replaced; a null in `child` removes the key.
YamlNode merged(YamlNode base, YamlNode child);

/// The tree of a file with everything that it extends. Empty, with errors, when one of the files cannot be used.
std::optional<YamlNode> load_tree(const SourcePtr& source, Diagnostics& diagnostics);

/// Sets "a.b.c" to a value written as YAML. A list is entered by index, or by the id or agent of an element.
void set_value(YamlNode& root, const std::string& path, const std::string& value, Diagnostics& diagnostics);

/// Keys of `x-` included; integers beyond 64 bits and .inf/.nan, which a checked tree does not hold, become strings.
std::string to_json(const YamlNode& node);

/// Reports each mistake in the schema that `node` holds. `owner` begins the messages ("agent 'judge': output schema").
void report_schema_mistakes(const YamlNode& node, const std::vector<SchemaMistake>& mistakes, const std::string& owner,
                            Diagnostics& diagnostics);

// Reading of checked trees: values of a map by key. A key that is absent or broken reads as absent, so that one
// mistake is reported once.

class Fields {
 public:
  explicit Fields(const YamlNode& map) : map_(map) {}

  const YamlNode* get(std::string_view key) const {
    const YamlEntry* entry = map_.entry(key);
    return entry == nullptr || entry->value.broken ? nullptr : &entry->value;
  }
  bool has(std::string_view key) const { return map_.entry(key) != nullptr; }
  SourceLocation where(std::string_view key) const { return map_.entry(key)->key.where(); }

  std::optional<std::string> text(std::string_view key) const {
    const YamlNode* value = get(key);
    return value == nullptr ? std::nullopt : std::optional(value->text);
  }
  std::optional<std::int64_t> integer(std::string_view key) const {
    const YamlNode* value = get(key);
    return value == nullptr ? std::nullopt : integer_of(value->text);
  }
  std::optional<float> number(std::string_view key) const {
    const YamlNode* value = get(key);
    return value == nullptr ? std::nullopt : std::optional(static_cast<float>(*number_of(value->text)));
  }
  std::optional<bool> boolean(std::string_view key) const {
    const YamlNode* value = get(key);
    return value == nullptr ? std::nullopt : std::optional(value->text[0] == 't' || value->text[0] == 'T');
  }
  std::optional<Milliseconds> duration(std::string_view key) const {
    const YamlNode* value = get(key);
    if (value == nullptr) return std::nullopt;
    return value->text == "none" ? Milliseconds{0} : parse_duration(value->text);
  }
  std::int64_t size(std::string_view key) const {
    const YamlNode* value = get(key);
    return value == nullptr ? 0 : parse_size(value->text).value_or(0);
  }

 private:
  const YamlNode& map_;
};

enum class Secrets : std::uint8_t {
  refuse,  // they would be printed
  keep,    // ${secret:NAME} stays as it is and is resolved where the value is used
};

struct Resolved {
  struct Range {
    std::size_t begin = 0, end = 0;  // bytes
  };
  std::string text;
  std::vector<Range> values;  // parts of the text that variables gave, in order; a default is the author's
  std::string error;          // empty: fine
  std::string code;           // the error's code
  bool changed = false;
};

/// Resolves ${env:NAME} and ${env:NAME:-default}; "$${" stands for "${". Any other ${...} is plain text.
Resolved resolve_environment(std::string_view text, Secrets secrets);

}  // namespace baton
