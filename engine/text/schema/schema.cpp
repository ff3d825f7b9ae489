// SPDX-License-Identifier: Apache-2.0
#include "engine/text/schema/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/pattern.h"

namespace baton {
namespace {

constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
constexpr std::size_t kMaxMistakes = 16;  // each may name a long place
constexpr std::string_view kDefinitions = "#/definitions/";

/// The supported keywords and the values that each of them may have.
class SchemaChecker {
 public:
  explicit SchemaChecker(const nlohmann::json& root) : root_(root) {}

  std::vector<SchemaMistake> take() { return std::move(mistakes_); }

  void check(const nlohmann::json& schema) {
    if (schema.is_boolean()) return;
    if (!schema.is_object()) return wrong("a schema is a map or a boolean");
    for (const auto& [keyword, value] : schema.items()) {
      if (mistakes_.size() >= kMaxMistakes) return;
      path_.push_back(keyword);
      check_keyword(keyword, value);
      path_.pop_back();
    }
  }

 private:
  void wrong(const std::string& message, std::string found = {}, std::vector<std::string> expected = {}) {
    std::string pointer;
    for (const std::string& name : path_) pointer += "/" + name;
    mistakes_.push_back(
        {path_, (pointer.empty() ? "the value" : pointer) + ": " + message, std::move(found), std::move(expected)});
  }

  void expect(bool fulfilled, const char* message) {
    if (!fulfilled) wrong(message);
  }

  using Check = void (SchemaChecker::*)(const nlohmann::json& value);

  /// The keywords, and what their values have to be; one without a check may have any.
  static const std::map<std::string, Check>& keywords() {
    using This = SchemaChecker;
    static const std::map<std::string, Check> all = {{"title", nullptr},
                                                     {"description", nullptr},
                                                     {"default", nullptr},
                                                     {"examples", nullptr},
                                                     {"$schema", nullptr},
                                                     {"$id", nullptr},
                                                     {"$comment", nullptr},
                                                     {"const", nullptr},
                                                     {"type", &This::check_types},
                                                     {"enum", &This::check_values},
                                                     {"minimum", &This::check_number},
                                                     {"maximum", &This::check_number},
                                                     {"exclusiveMinimum", &This::check_number},
                                                     {"minLength", &This::check_count},
                                                     {"maxLength", &This::check_count},
                                                     {"minItems", &This::check_count},
                                                     {"maxItems", &This::check_count},
                                                     {"pattern", &This::check_pattern},
                                                     {"required", &This::check_required},
                                                     {"items", &This::check},
                                                     {"additionalProperties", &This::check},
                                                     {"if", &This::check},
                                                     {"then", &This::check},
                                                     {"else", &This::check},
                                                     {"anyOf", &This::check_list},
                                                     {"allOf", &This::check_list},
                                                     {"properties", &This::check_map},
                                                     {"definitions", &This::check_map},
                                                     {"patternProperties", &This::check_patterns},
                                                     {"$ref", &This::check_reference}};
    return all;
  }

  void check_keyword(const std::string& keyword, const nlohmann::json& value) {
    if (keyword.starts_with("x-")) return;  // an annotation, as in the whole file
    if (const auto found = keywords().find(keyword); found != keywords().end()) {
      if (found->second != nullptr) (this->*found->second)(value);
      return;
    }
    std::vector<std::string> expected;
    for (const auto& entry : keywords()) expected.push_back(entry.first);
    wrong("this keyword is not supported", keyword, std::move(expected));
  }

  void check_values(const nlohmann::json& value) {
    expect(value.is_array() && !value.empty(), "expected a list of values");
  }
  void check_number(const nlohmann::json& value) { expect(value.is_number(), "expected a number"); }
  void check_count(const nlohmann::json& value) {
    expect(value.is_number_integer() && value >= 0, "expected an integer of at least 0");
  }

  void check_types(const nlohmann::json& value) {
    const nlohmann::json types = value.is_array() ? value : nlohmann::json::array({value});
    if (types.empty()) return wrong("expected a type");
    for (const nlohmann::json& type : types) {
      const std::string name = type.is_string() ? type.get<std::string>() : "";
      if (std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes))
        return wrong("expected a type of JSON (null, boolean, integer, number, string, array, object)", name,
                     {std::begin(kTypes), std::end(kTypes)});
    }
  }

  void check_pattern(const nlohmann::json& value) {
    if (!value.is_string()) return wrong("expected a string");
    try {
      Pattern compiled(value.get<std::string>());
    } catch (const std::invalid_argument& error) {
      wrong(error.what());
    }
  }

  void check_required(const nlohmann::json& value) {
    expect(value.is_array() &&
               std::all_of(value.begin(), value.end(), [](const nlohmann::json& name) { return name.is_string(); }),
           "expected a list of names");
  }

  void check_list(const nlohmann::json& value) {
    if (!value.is_array() || value.empty()) return wrong("expected a list of schemas");
    check_all(value);
  }

  void check_all(const nlohmann::json& value) {
    for (const auto& [name, schema] : value.items()) {
      if (mistakes_.size() >= kMaxMistakes) return;
      path_.push_back(name);
      check(schema);
      path_.pop_back();
    }
  }

  void check_map(const nlohmann::json& value) {
    if (!value.is_object()) return wrong("expected a map of schemas");
    check_all(value);
  }

  void check_patterns(const nlohmann::json& value) {
    if (value.is_object()) {
      for (const auto& entry : value.items()) check_pattern(entry.key());
    }
    check_map(value);
  }

  void check_reference(const nlohmann::json& value) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    const bool inside = name.starts_with(kDefinitions) && root_.contains("definitions") &&
                        root_["definitions"].is_object() &&
                        root_["definitions"].contains(name.substr(kDefinitions.size()));
    expect(inside, "expected '#/definitions/' and the name of a definition");
  }

  const nlohmann::json& root_;
  std::vector<std::string> path_;
  std::vector<SchemaMistake> mistakes_;
};

using OrderedJson = nlohmann::ordered_json;

OrderedJson as_list(const OrderedJson& value) { return value.is_array() ? value : OrderedJson::array({value}); }

bool holds_value(const OrderedJson& list, const OrderedJson& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  const OrderedJson one = as_list(a), other = as_list(b);
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& type : one) {
    if (holds_value(other, type) || (type == "integer" && holds_value(other, "number"))) out.push_back(type);
    if (type == "number" && holds_value(other, "integer") && !holds_value(other, "number")) out.push_back("integer");
  }
  return out;
}

[[noreturn]] void fail_merge(const std::string& pointer, const std::string& keyword) {
  throw ConstraintError(fmt::format("{}: two schemas that hold together both have '{}'",
                                    pointer.empty() ? "the schema" : pointer, keyword));
}

OrderedJson merged_properties(const OrderedJson& a, const OrderedJson& b, const std::string& pointer) {
  OrderedJson out = a;
  auto& members = out.get_ref<OrderedJson::object_t&>();
  std::unordered_map<std::string, std::size_t, SeededHash> places;
  for (const auto& [name, schema] : members) places.emplace(name, places.size());
  for (const auto& [name, schema] : b.items()) {
    const auto [found, added] = places.try_emplace(name, members.size());
    if (added) {
      members.push_back({name, schema});
    } else {
      OrderedJson& own = std::next(members.begin(), static_cast<std::ptrdiff_t>(found->second))->second;
      own = merged_schema(own, schema, pointer + "/properties/" + name);
    }
  }
  return out;
}

}  // namespace

struct Schema::Content {
  Content() = default;
  Content(const Content&) = delete;
  std::string text;
  JsonDocument root;
  std::optional<JsonError> unread;
};

Schema::Schema(std::string_view text) {
  auto content = std::make_shared<Content>();
  content->text = text;
  try {
    content->root = read_json(text);
  } catch (const JsonError& error) {
    content->unread = error;
  }
  content_ = std::move(content);
}

const nlohmann::json& Schema::root() const {
  if (content_->unread) throw JsonError(*content_->unread);
  return *content_->root;
}

nlohmann::ordered_json Schema::root_in_order() const {
  JsonLimits limits;
  limits.unique_keys = true;
  read_json(content_->text, limits);  // what is parsed below is within the limits
  return nlohmann::ordered_json::parse(content_->text);
}

std::vector<SchemaMistake> Schema::mistakes() const {
  if (const auto& error = content_->unread)
    return {{{}, error->kind == JsonError::Kind::limit ? error->what() : "the schema is not JSON", {}, {}}};
  SchemaChecker checker(root());
  checker.check(root());
  return checker.take();
}

bool is_annotation(const std::string& keyword) {
  static constexpr const char* kNames[] = {"title",   "description", "default",  "examples",
                                           "$schema", "$id",         "$comment", "definitions"};
  return keyword.starts_with("x-") || std::find(std::begin(kNames), std::end(kNames), keyword) != std::end(kNames);
}

std::string definition_name(const std::string& reference) { return reference.substr(kDefinitions.size()); }

OrderedJson merged_schema(const OrderedJson& a, const OrderedJson& b, const std::string& pointer) {
  if (a == false || b == false) return false;
  if (a == true) return b;
  if (b == true) return a;
  if (a.contains("$ref") || b.contains("$ref")) fail_merge(pointer, "$ref");
  OrderedJson out = a;
  for (const auto& [keyword, value] : b.items()) {
    if (is_annotation(keyword)) continue;
    if (!out.contains(keyword)) {
      out[keyword] = value;
      continue;
    }
    OrderedJson& own = out[keyword];
    if (own == value) continue;
    if (keyword == "type") {
      own = common_types(own, value);
    } else if (keyword == "required") {
      std::unordered_set<std::string, SeededHash> names;
      for (const OrderedJson& name : own) names.insert(name.get<std::string>());
      for (const OrderedJson& name : value) {
        if (names.insert(name.get<std::string>()).second) own.push_back(name);
      }
    } else if (keyword == "properties") {
      own = merged_properties(own, value, pointer);
    } else if (keyword == "allOf") {
      for (const OrderedJson& part : value) own.push_back(part);
    } else if (keyword.starts_with("min") || keyword == "exclusiveMinimum") {
      own = std::max(own, value);
    } else if (keyword.starts_with("max")) {
      own = std::min(own, value);
    } else {
      fail_merge(pointer, keyword);
    }
  }
  // If one schema allows no other properties, the other may not have any.
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->contains("additionalProperties") || (*one)["additionalProperties"] == true) continue;
    const OrderedJson own = one->value("properties", OrderedJson::object());
    const OrderedJson others = other->value("properties", OrderedJson::object());
    std::unordered_set<std::string, SeededHash> names;
    for (const auto& [name, schema] : own.items()) names.insert(name);
    for (const auto& [name, schema] : others.items()) {
      if (!names.contains(name)) fail_merge(pointer, "additionalProperties");
    }
  }
  return out;
}

std::vector<SchemaMistake> json_schema_mistakes(const std::string& schema) { return Schema(schema).mistakes(); }

std::vector<SchemaMistake> parameters_mistakes(const std::string& schema) {
  const Schema read(schema);
  std::vector<SchemaMistake> mistakes = read.mistakes();
  if (!mistakes.empty()) return mistakes;
  const nlohmann::json& root = read.root();
  const bool object =
      root.is_object() && (root.contains("properties") || root.value("type", nlohmann::json()) == "object");
  if (!object) mistakes.push_back({{}, "expected the schema of an object, with 'properties'", {}, {}});
  return mistakes;
}

std::string check_json_schema(const std::string& schema) {
  const std::vector<SchemaMistake> mistakes = json_schema_mistakes(schema);
  return mistakes.empty() ? "" : mistakes.front().text;
}

std::string check_parameters(const std::string& schema) {
  const std::vector<SchemaMistake> mistakes = parameters_mistakes(schema);
  return mistakes.empty() ? "" : mistakes.front().text;
}

// The check of an answer by a Schema.

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
