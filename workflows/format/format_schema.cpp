// SPDX-License-Identifier: Apache-2.0
// The format's table as a JSON Schema (draft-07) and as the reference page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "workflows/format/diagnostics.h"
#include "workflows/format/format_table.h"
#include "workflows/format/spec.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Kind = FormatType::Kind;

constexpr const char* kIdPattern = "^[a-z][a-z0-9_]{0,63}$";

/// Objects of the table in its order, without the file itself.
std::vector<std::string> object_names(std::span<const FormatKey> keys) {
  std::vector<std::string> names;
  for (const FormatKey& key : keys) {
    if (!key.object.empty() && std::find(names.begin(), names.end(), key.object) == names.end())
      names.push_back(key.object);
  }
  return names;
}

OrderedJson bound(double value) {
  if (value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}

/// A number may also come from the environment.
OrderedJson number_schema(const FormatType& type, const char* name) {
  OrderedJson number = {{"type", name}};
  number[type.above_low ? "exclusiveMinimum" : "minimum"] = bound(type.low);
  number["maximum"] = bound(type.high);
  return {{"anyOf", {number, {{"$ref", "#/definitions/environment"}}}}};
}

/// Which of the two forms of an object: `part` lies over another file, so that nothing in it is required and `null`
/// removes a key.
enum class Form : std::uint8_t { whole, part };

std::string definition(const std::string& object, Form form) {
  return "#/definitions/" + (object.empty() ? "file" : object) + (form == Form::part ? "_part" : "");
}

OrderedJson schema_of(const FormatType& type, Form form) {
  switch (type.kind) {
    case Kind::any:
      return OrderedJson::object();
    case Kind::string:
    case Kind::prompt:
      return {{"type", "string"}};
    case Kind::scalar:
      return {{"type", {"string", "number", "boolean"}}};
    case Kind::id:
      return {{"type", "string"}, {"pattern", kIdPattern}};
    case Kind::boolean:
      return {{"anyOf", {{{"type", "boolean"}}, {{"$ref", "#/definitions/environment"}}}}};
    case Kind::integer:
      return number_schema(type, "integer");
    case Kind::number:
      return number_schema(type, "number");
    case Kind::duration:
      return {{"type", "string"},
              {"pattern", fmt::format("^[0-9.]+(ms|s|m|h)$|{}\\$\\{{env:", type.above_low ? "^none$|" : "")}};
    case Kind::size:
      return {{"type", "string"}, {"pattern", "^[0-9.]+(B|KiB|MiB|GiB|TiB)$|\\$\\{env:"}};
    case Kind::choice:
      return {{"anyOf", {{{"enum", type.words}}, {{"$ref", "#/definitions/environment"}}}}};
    case Kind::object:
      return {{"$ref", definition(type.name, form)}};
    case Kind::list:
      return {{"type", "array"}, {"items", schema_of(type.of[0], Form::whole)}};  // lists are replaced, not merged
    case Kind::map: {
      OrderedJson element = schema_of(type.of[0], form);
      if (form == Form::part) element = {{"anyOf", {element, {{"type", "null"}}}}};
      if (type.free_keys) return {{"type", "object"}, {"additionalProperties", std::move(element)}};
      OrderedJson map = {{"type", "object"}, {"additionalProperties", false}};
      map["patternProperties"] = {{kIdPattern, std::move(element)}, {"^x-", OrderedJson::object()}};
      return map;
    }
    case Kind::either: {
      OrderedJson alternatives = OrderedJson::array();
      for (const FormatType& one : type.of) alternatives.push_back(schema_of(one, form));
      return {{"anyOf", alternatives}};
    }
  }
  return OrderedJson::object();
}

/// An object with all of its keys.
OrderedJson keys_schema(const std::string& object, Form form) {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array(), one_of = OrderedJson::array();
  for (const FormatKey& key : format_keys()) {
    if (key.object != object) continue;
    OrderedJson alternatives = OrderedJson::array({schema_of(key.type, form)});
    if (form == Form::part) alternatives.push_back({{"type", "null"}});
    OrderedJson property = {{"description", key.description}};
    if (alternatives.size() == 1 && !alternatives[0].contains("$ref")) {  // draft-07 ignores keys next to $ref
      property.update(alternatives[0]);
    } else {
      property["anyOf"] = std::move(alternatives);
    }
    properties[key.key] = std::move(property);
    if (key.required && key.unless.empty()) required.push_back(key.key);
    if (!key.required || key.unless.empty()) continue;
    one_of = {{{"required", {key.key}}}};
    for (const std::string& other : key.unless) one_of.push_back({{"required", {other}}});
  }
  OrderedJson schema = {{"type", "object"},
                        {"properties", properties},
                        {"patternProperties", {{"^x-", OrderedJson::object()}}},
                        {"additionalProperties", false}};
  if (form == Form::whole && !required.empty()) schema["required"] = required;
  if (form == Form::whole && !one_of.empty()) schema["anyOf"] = one_of;
  return schema;
}

/// The key by which another file supplies what this object leaves out.
const char* base_key(const std::string& object) {
  return object.empty() ? "extends" : object == "agent" ? "use" : nullptr;
}

void add_definitions(OrderedJson& definitions, const std::string& object) {
  const auto name = [](const std::string& reference) {
    return reference.substr(std::string_view("#/definitions/").size());
  };
  const std::string whole = definition(object, Form::whole), part = definition(object, Form::part);
  definitions[name(part)] = keys_schema(object, Form::part);
  if (base_key(object) == nullptr) {
    definitions[name(whole)] = keys_schema(object, Form::whole);
    return;
  }
  definitions[name(whole) + "_whole"] = keys_schema(object, Form::whole);
  definitions[name(whole)] = {
      {"if", {{"required", {base_key(object)}}}}, {"then", {{"$ref", part}}}, {"else", {{"$ref", whole + "_whole"}}}};
}

/// A cell of a Markdown table.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.replace(at, 1, "\\|");
  return text;
}

std::string required_text(const FormatKey& key) {
  return key.unless.empty() ? "required" : fmt::format("required without `{}`", fmt::join(key.unless, "`, `"));
}

}  // namespace

std::string workflow_json_schema() {
  OrderedJson definitions = {{"environment", {{"type", "string"}, {"pattern", "\\$\\{env:"}}}};
  add_definitions(definitions, "");
  for (const std::string& name : object_names(format_keys())) add_definitions(definitions, name);
  const OrderedJson schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                              {"title", "Baton workflow, version 1"},
                              {"allOf", {{{"$ref", definition("", Form::whole)}}}},
                              {"definitions", std::move(definitions)}};
  return schema.dump(2) + "\n";
}

std::string workflow_reference_markdown() {
  std::vector<std::string> objects = object_names(product_format_keys());
  objects.insert(objects.begin(), "");
  std::string out;
  for (const std::string& object : objects) {
    out += fmt::format("### {}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n",
                       format_object_title(object));
    for (const FormatKey& key : product_format_keys()) {
      if (key.object != object) continue;
      out += fmt::format("| `{}` | {} | {} | {} |\n", key.key, cell(described(key.type)),
                         key.required ? required_text(key) : cell(key.default_text), cell(key.description));
    }
    out += "\n";
  }
  out += "### Error codes\n\n| code | meaning |\n| --- | --- |\n";
  for (const ErrorCode& code : error_codes()) out += fmt::format("| {} | {} |\n", code.code, code.meaning);
  return out;
}

}  // namespace baton
