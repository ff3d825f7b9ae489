// SPDX-License-Identifier: Apache-2.0
// Reading of checked trees: values of a map by key. A key that is absent or broken reads as absent, so that one
// mistake is reported once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/units/numbers.h"
#include "workflows/format/spec.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

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
  std::vector<Range> values;  // of the text: what variables hold, in order; a default is the author's
  std::string error;          // empty: fine
  std::string code;           // of the error
  bool changed = false;
};

/// Resolves ${env:NAME} and ${env:NAME:-default}; "$${" stands for "${". Any other ${...} is plain text.
Resolved resolve_environment(std::string_view text, Secrets secrets);

}  // namespace baton
