// The format's table as a JSON Schema (draft-07) and as the reference page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "workflows/error_codes.h"
#include "workflows/format_table.h"
#include "workflows/spec.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Kind = FormatType::Kind;

constexpr const char* kIdPattern = "^[a-z][a-z0-9_]{0,63}$";

/// Objects of the table in its order, without the file itself.
std::vector<std::string> object_names() {
  std::vector<std::string> names;
  for (const FormatKey& key : format_keys()) {
    if (!key.object.empty() && std::find(names.begin(), names.end(), key.object) == names.end()) names.push_back(key.object);
  }
  return names;
}

Json bound(double value) {
  if (value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}

/// A number may also come from the environment.
Json number_schema(const FormatType& type, const char* name) {
  Json number = {{"type", name}};
  number[type.above_low ? "exclusiveMinimum" : "minimum"] = bound(type.low);
  number["maximum"] = bound(type.high);
  return {{"anyOf", {number, {{"$ref", "#/definitions/environment"}}}}};
}

Json schema_of(const FormatType& type) {
  switch (type.kind) {
    case Kind::any: return Json::object();
    case Kind::string:
    case Kind::prompt: return {{"type", "string"}};
    case Kind::scalar: return {{"type", {"string", "number", "boolean"}}};
    case Kind::id: return {{"type", "string"}, {"pattern", kIdPattern}};
    case Kind::boolean: return {{"anyOf", {{{"type", "boolean"}}, {{"$ref", "#/definitions/environment"}}}}};
    case Kind::integer: return number_schema(type, "integer");
    case Kind::number: return number_schema(type, "number");
    case Kind::duration: return {{"type", "string"}, {"pattern", "^[0-9.]+(ms|s|m|h)$|\\$\\{env:"}};
    case Kind::size: return {{"type", "string"}, {"pattern", "^[0-9.]+(B|KiB|MiB|GiB|TiB)$|\\$\\{env:"}};
    case Kind::choice: return {{"anyOf", {{{"enum", type.words}}, {{"$ref", "#/definitions/environment"}}}}};
    case Kind::object: return {{"$ref", "#/definitions/" + type.name}};
    case Kind::list: return {{"type", "array"}, {"items", schema_of(type.of[0])}};
    case Kind::map: {
      Json map = {{"type", "object"}, {"additionalProperties", false}};
      map["patternProperties"] = {{kIdPattern, schema_of(type.of[0])}, {"^x-", Json::object()}};
      return map;
    }
    case Kind::either: {
      Json alternatives = Json::array();
      for (const FormatType& one : type.of) alternatives.push_back(schema_of(one));
      return {{"anyOf", alternatives}};
    }
  }
  return Json::object();
}

Json object_schema(const std::string& object) {
  Json properties = Json::object(), required = Json::array();
  std::string base;  // the key by which another file can supply what is missing
  for (const FormatKey& key : format_keys()) {
    if (key.object != object) continue;
    Json property = schema_of(key.type);
    if (property.contains("$ref")) property = {{"anyOf", {property}}};  // draft-07 ignores what stands beside $ref
    property["description"] = key.description;
    properties[key.key] = std::move(property);
    if (key.required) required.push_back(key.key);
    if (key.key == "extends" || key.key == "use") base = key.key;
  }
  Json schema = {{"type", "object"}, {"properties", properties}, {"patternProperties", {{"^x-", Json::object()}}}, {"additionalProperties", false}};
  if (!base.empty()) {
    schema["anyOf"] = {{{"required", {base}}}, {{"required", required}}};
  } else if (!required.empty()) {
    schema["required"] = required;
  }
  return schema;
}

/// A cell of a Markdown table.
std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.replace(at, 1, "\\|");
  return text;
}

}  // namespace

std::string workflow_json_schema() {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "Baton workflow, version 1"}};
  schema.update(object_schema(""));
  Json definitions = {{"environment", {{"type", "string"}, {"pattern", "\\$\\{env:"}}}};
  for (const std::string& name : object_names()) definitions[name] = object_schema(name);
  schema["definitions"] = std::move(definitions);
  return schema.dump(2) + "\n";
}

std::string workflow_reference_markdown() {
  std::vector<std::string> objects = object_names();
  objects.insert(objects.begin(), "");
  std::string out;
  for (const std::string& object : objects) {
    out += fmt::format("### {}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n", format_object_title(object));
    for (const FormatKey& key : format_keys()) {
      if (key.object != object) continue;
      out += fmt::format("| `{}` | {} | {} | {} |\n", key.key, cell(described(key.type)), key.required ? "required" : cell(key.default_text), cell(key.description));
    }
    out += "\n";
  }
  out += "### Error codes\n\n| code | meaning |\n| --- | --- |\n";
  for (const ErrorCode& code : error_codes()) out += fmt::format("| {} | {} |\n", code.code, code.meaning);
  return out;
}

}  // namespace baton
