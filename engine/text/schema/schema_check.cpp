// SPDX-License-Identifier: Apache-2.0
// The check of an answer by a Schema.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/pattern.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kUnitsOfStep = 64;  // Effort of one value against one schema

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (value.is_number_float()) return std::floor(value.get<double>()) == value.get<double>();  // 1.0 is an integer
  return value.is_number_integer();
}

std::string joined(const Json& words) {
  std::string out;
  for (const Json& word : words) out += (out.empty() ? "" : ", ") + json_text(word);
  return out;
}

std::string at(const std::string& pointer, const std::string& message) {
  return (pointer.empty() ? "the value" : pointer) + ": " + message;
}

/// Checks one value against one schema; every function returns the first error, or an empty text.
class ValueChecker {
 public:
  /// `bytes`: of the text.
  ValueChecker(const Json& root, std::size_t bytes) : root_(root), effort_(effort_for_output(bytes)) {}

  /// Throws std::runtime_error if it takes too many steps: nested alternatives double them with each level.
  std::string check(const Json& value, const Json& schema, const std::string& pointer, int depth = 0) {
    if (depth > kMaxSchemaDepth)
      return at(pointer, fmt::format("too much nesting for the schema: expected at most {} levels", kMaxSchemaDepth));
    const std::size_t characters = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
    if (!effort_.take(kUnitsOfStep + pointer.size() + characters))
      throw std::runtime_error("the check by the schema needs too many steps");
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at(pointer, "is not allowed");
    if (schema.contains("$ref")) {
      const auto name = definition_name(schema["$ref"].get<std::string>());
      return check(value, root_["definitions"][name], pointer, depth + 1);
    }
    std::string wrong = check_any(value, schema, pointer, depth);
    if (wrong.empty() && value.is_number()) wrong = check_number(value.get<double>(), schema, pointer);
    if (wrong.empty() && value.is_string()) wrong = check_string(value.get_ref<const std::string&>(), schema, pointer);
    if (wrong.empty() && value.is_array()) wrong = check_array(value, schema, pointer, depth);
    if (wrong.empty() && value.is_object()) wrong = check_object(value, schema, pointer, depth);
    return wrong;
  }

 private:
  std::string check_any(const Json& value, const Json& schema, const std::string& pointer, int depth) {
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      const Json types = type.is_array() ? type : Json::array({type});
      const bool fits =
          std::any_of(types.begin(), types.end(), [&](const Json& t) { return has_type(value, t.get<std::string>()); });
      if (!fits) return at(pointer, fmt::format("expected {}, found {}", joined(types), value.type_name()));
    }
    if (schema.contains("enum")) {
      const Json& words = schema["enum"];
      if (std::find(words.begin(), words.end(), value) == words.end())
        return at(pointer, "expected one of " + joined(words));
    }
    if (schema.contains("const") && value != schema["const"])
      return at(pointer, "expected " + joined(Json::array({schema["const"]})));
    if (schema.contains("anyOf")) {
      std::string first;
      for (const Json& alternative : schema["anyOf"]) {
        const std::string wrong = check(value, alternative, pointer, depth + 1);
        if (wrong.empty()) return {};
        if (first.empty()) first = wrong;
      }
      return first + " (and no other alternative fits)";
    }
    return check_combined(value, schema, pointer, depth);
  }

  std::string check_combined(const Json& value, const Json& schema, const std::string& pointer, int depth) {
    for (const Json& part : schema.value("allOf", Json::array())) {
      const std::string wrong = check(value, part, pointer, depth + 1);
      if (!wrong.empty()) return wrong;
    }
    if (!schema.contains("if")) return {};
    const char* branch = check(value, schema["if"], pointer, depth + 1).empty() ? "then" : "else";
    return schema.contains(branch) ? check(value, schema[branch], pointer, depth + 1) : "";
  }

  static std::string check_number(double value, const Json& schema, const std::string& pointer) {
    if (schema.contains("minimum") && value < schema["minimum"].get<double>()) {
      return at(pointer, fmt::format("{} is less than {}", value, schema["minimum"].get<double>()));
    }
    if (schema.contains("maximum") && value > schema["maximum"].get<double>()) {
      return at(pointer, fmt::format("{} is more than {}", value, schema["maximum"].get<double>()));
    }
    if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"].get<double>()) {
      return at(pointer, fmt::format("{} is not more than {}", value, schema["exclusiveMinimum"].get<double>()));
    }
    return {};
  }

  static std::string check_size(std::size_t size, const Json& schema, const char* least, const char* most,
                                const char* unit, const std::string& pointer) {
    if (schema.contains(least) && size < schema[least].get<std::size_t>()) {
      return at(pointer,
                fmt::format("has {} {}, at least {} are expected", size, unit, schema[least].get<std::size_t>()));
    }
    if (schema.contains(most) && size > schema[most].get<std::size_t>()) {
      return at(pointer,
                fmt::format("has {} {}, at most {} are expected", size, unit, schema[most].get<std::size_t>()));
    }
    return {};
  }

  std::string check_string(const std::string& value, const Json& schema, const std::string& pointer) {
    const std::string wrong = check_size(utf8::count(value), schema, "minLength", "maxLength", "characters", pointer);
    if (!wrong.empty()) return wrong;
    if (schema.contains("pattern") && !matches(schema["pattern"].get_ref<const std::string&>(), value)) {
      return at(pointer, fmt::format("does not match '{}'", schema["pattern"].get<std::string>()));
    }
    return {};
  }

  std::string check_array(const Json& value, const Json& schema, const std::string& pointer, int depth) {
    std::string wrong = check_size(value.size(), schema, "minItems", "maxItems", "items", pointer);
    if (!wrong.empty() || !schema.contains("items")) return wrong;
    for (std::size_t i = 0; i < value.size() && wrong.empty(); ++i) {
      wrong = check(value[i], schema["items"], fmt::format("{}/{}", pointer, i), depth + 1);
    }
    return wrong;
  }

  std::string check_object(const Json& value, const Json& schema, const std::string& pointer, int depth) {
    std::vector<std::string> missing;
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) missing.push_back(fmt::format("'{}'", name.get<std::string>()));
    }
    if (!missing.empty()) {
      const bool one = missing.size() == 1;
      return at(pointer,
                fmt::format("the key{} {} {} missing", one ? "" : "s", fmt::join(missing, ", "), one ? "is" : "are"));
    }
    for (const auto& [name, member] : value.items()) {
      const std::string wrong = check_member(name, member, schema, pointer, depth);
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

  std::string check_member(const std::string& name, const Json& member, const Json& schema, const std::string& pointer,
                           int depth) {
    const std::string below = pointer + "/" + name;
    bool known = false;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      known = true;
      const std::string wrong = check(member, schema["properties"][name], below, depth + 1);
      if (!wrong.empty()) return wrong;
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, rest] : schema["patternProperties"].items()) {
        if (!matches(pattern, name)) continue;
        known = true;
        const std::string wrong = check(member, rest, below, depth + 1);
        if (!wrong.empty()) return wrong;
      }
    }
    if (known || !schema.contains("additionalProperties")) return {};
    return check(member, schema["additionalProperties"], below, depth + 1);
  }

  bool matches(const std::string& pattern, const std::string& text) {
    return patterns_.try_emplace(pattern, pattern).first->second.search(text, effort_);
  }

  const Json& root_;
  Effort effort_;
  std::map<std::string, Pattern> patterns_;
};

}  // namespace

std::string check_json(std::string_view text, const Schema& schema) {
  try {
    const JsonDocument value = read_json(text);
    return ValueChecker(schema.root(), text.size()).check(*value, schema.root(), "");
  } catch (const JsonError& error) {
    return error.kind == JsonError::Kind::limit ? error.what() : "the text is not JSON";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::string check_json(std::string_view text, const std::string& schema) { return check_json(text, Schema(schema)); }

}  // namespace baton
