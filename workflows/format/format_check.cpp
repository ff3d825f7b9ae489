// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "engine/base/units/numbers.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/format_table.h"
#include "workflows/format/spec.h"
#include "workflows/format/yaml_tree.h"

namespace baton {
namespace {

using Kind = FormatType::Kind;

class FormatChecker {
 public:
  explicit FormatChecker(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void check(YamlNode& node, const FormatType& type, const std::string& path, const SourceLocation& where) {
    if (node.broken) return;
    if (type.kind == Kind::any) {
      check_any(node, type, path);
      return;
    }
    if (type.kind == Kind::either) {
      const auto fits =
          std::find_if(type.of.begin(), type.of.end(), [&](const FormatType& t) { return has_shape(node, t); });
      if (fits == type.of.end()) return wrong(node, type, path, where);
      return check(node, *fits, path, where);
    }
    if (!has_shape(node, type)) return wrong(node, type, path, where);
    if (type.kind == Kind::object) return check_object(node, type, path, where);
    if (type.kind == Kind::list) return check_list(node, type, path);
    if (type.kind == Kind::map) return check_map(node, type, path);
    if (type.kind != Kind::prompt && !resolve(node, type)) return;
    if (!fits_scalar(node, type)) wrong(node, type, path, where);
  }

 private:
  static bool has_shape(const YamlNode& node, const FormatType& type) {
    switch (type.kind) {
      case Kind::any:
        return true;
      case Kind::list:
        return node.kind == YamlNode::Kind::list;
      case Kind::object:
      case Kind::map:
        return node.kind == YamlNode::Kind::map;
      default:
        return node.is_scalar() && node.kind != YamlNode::Kind::null;
    }
  }

  static bool has_any(const YamlNode& node, const std::vector<std::string>& keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return node.entry(key) != nullptr; });
  }

  /// Checks a value of any kind, such as a JSON Schema. It becomes JSON as it stands, so its numbers must be ones that
  /// JSON can hold here. A node that contains an error is marked broken.
  void check_any(YamlNode& node, const FormatType& type, const std::string& path) {
    const auto check_part = [&](YamlNode& part, const std::string& part_path) {
      check_any(part, type, part_path);
      node.broken = node.broken || part.broken;
    };
    for (std::size_t i = 0; i < node.items.size(); ++i) check_part(node.items[i], fmt::format("{}[{}]", path, i));
    for (YamlEntry& entry : node.entries) check_part(entry.value, path + "." + entry.key.text);
    if (!node.is_scalar() || node.broken || !resolve(node, type)) return;
    const bool fits = node.kind == YamlNode::Kind::integer  ? integer_of(node.text).has_value()
                      : node.kind == YamlNode::Kind::number ? number_of(node.text).has_value()
                                                            : true;
    if (fits) return;
    node.broken = true;
    diagnostics_.error(
        node.where(), "E0404",
        fmt::format("{}: expected an integer of 64 bits or a finite number, found '{}'", path, node.text),
        "in quotes it is a text");
  }

  bool resolve(YamlNode& node, const FormatType& type) {
    Resolved resolved = resolve_environment(node.text, type.kind == Kind::scalar ? Secrets::keep : Secrets::refuse);
    if (!resolved.error.empty()) {
      node.broken = true;
      diagnostics_.error(node.where(), resolved.code, resolved.error);
      return false;
    }
    if (!resolved.changed) return true;
    node.text = std::move(resolved.text);
    node.has_values = !resolved.values.empty();
    // A flow map needs quotes around ${...}, so they say nothing about the type of the variable's value.
    const bool typed = type.kind == Kind::boolean || type.kind == Kind::integer || type.kind == Kind::number ||
                       (type.kind == Kind::any && node.plain);
    if (typed) node.kind = kind_of_plain(node.text);
    return true;
  }

  static bool fits_scalar(const YamlNode& node, const FormatType& type) {
    const bool is_string = node.kind == YamlNode::Kind::string;
    switch (type.kind) {
      case Kind::string:
      case Kind::prompt:
        return is_string;
      case Kind::scalar:
        return true;
      case Kind::id:
        return is_string && is_id(node.text);
      case Kind::boolean:
        return node.kind == YamlNode::Kind::boolean;
      case Kind::integer: {
        const auto value = integer_of(node.text);
        return node.kind == YamlNode::Kind::integer && value && in_range(static_cast<double>(*value), type);
      }
      case Kind::number: {
        const auto value = number_of(node.text);
        const bool numeric = node.kind == YamlNode::Kind::integer || node.kind == YamlNode::Kind::number;
        return numeric && value && in_range(*value, type);
      }
      case Kind::duration: {
        const auto value = is_string ? parse_duration(node.text) : std::nullopt;
        if (type.above_low) return (is_string && node.text == "none") || (value && value->count() > 0);
        return value.has_value();
      }
      case Kind::size:
        return is_string && parse_size(node.text);
      case Kind::choice:
        return std::find(type.words.begin(), type.words.end(), node.text) != type.words.end();
      default:
        return true;
    }
  }

  static bool in_range(double value, const FormatType& type) {
    return value <= type.high && (type.above_low ? value > type.low : value >= type.low);
  }

  void check_list(YamlNode& node, const FormatType& type, const std::string& path) {
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      check(node.items[i], type.of[0], fmt::format("{}[{}]", path, i), node.items[i].where());
    }
  }

  void check_map(YamlNode& node, const FormatType& type, const std::string& path) {
    for (YamlEntry& entry : node.entries) {
      if (is_extension_key(entry.key.text)) continue;
      if (!type.free_keys && !is_id(entry.key.text)) {
        entry.value.broken = true;
        diagnostics_.error(
            entry.key.where(), "E0406",
            fmt::format("'{}' is not an id: expected a lower-case letter, then letters, digits and '_', at most 64",
                        entry.key.text));
        continue;
      }
      check(entry.value, type.of[0], path + "." + entry.key.text, entry.key.where());
    }
  }

  void check_object(YamlNode& node, const FormatType& type, const std::string& path, const SourceLocation& where) {
    std::vector<std::string> known;
    for (const FormatKey& key : format_keys()) {
      if (key.object == type.name) known.push_back(key.key);
    }
    for (YamlEntry& entry : node.entries) {
      if (is_extension_key(entry.key.text) || std::find(known.begin(), known.end(), entry.key.text) != known.end())
        continue;
      const std::string moved = moved_key_help(type.name, entry.key.text);
      diagnostics_.error(entry.key.where(), "E0401",
                         fmt::format("unknown key '{}'{}", entry.key.text, path.empty() ? "" : " in " + path),
                         moved.empty() ? diagnostics_.suggestion(entry.key.text, known) : moved);
      if (!moved.empty()) continue;
      // A misspelt key is reported once: from here on it is the one that was meant, with a broken value.
      const std::string meant = closest(entry.key.text, known);
      if (meant.empty() || node.entry(meant) != nullptr) continue;
      entry.key.text = meant;
      entry.value.broken = true;
    }
    for (const FormatKey& key : format_keys()) {
      if (key.object != type.name) continue;
      if (YamlEntry* entry = node.entry(key.key)) {
        check(entry->value, key.type, path.empty() ? key.key : path + "." + key.key, entry->key.where());
      } else if (key.required && !has_any(node, key.unless)) {
        diagnostics_.error(
            where, "E0402",
            fmt::format("{}{}missing key '{}'{}", path, path.empty() ? "" : ": ", key.key,
                        key.unless.empty() ? "" : fmt::format(" (or '{}')", fmt::join(key.unless, "' or '"))));
        node.broken = true;
      }
    }
  }

  /// Describes the type without its content, because only the kind is wrong.
  static std::string expected(const FormatType& type) {
    if (type.kind == Kind::object || type.kind == Kind::map) return "a map";
    if (type.kind == Kind::list) return "a list";
    if (type.kind != Kind::either) return described(type);
    std::string out;
    for (const FormatType& alternative : type.of) out += (out.empty() ? "" : ", or ") + expected(alternative);
    return out;
  }

  std::string hint(const YamlNode& node, const FormatType& type) const {
    const bool takes_string = type.kind == Kind::string || type.kind == Kind::prompt;
    const bool takes_number = type.kind == Kind::integer || type.kind == Kind::number;
    if (!node.is_scalar() || node.kind == YamlNode::Kind::null) return {};
    if (takes_string) return fmt::format("if it is meant as a text, write \"{}\"", node.text);
    if (takes_number && !node.plain && kind_of_plain(node.text) != YamlNode::Kind::string)
      return "write it without quotes";
    return type.kind == Kind::choice ? diagnostics_.suggestion(node.text, type.words) : "";
  }

  void wrong(YamlNode& node, const FormatType& type, const std::string& path, const SourceLocation& where) {
    constexpr std::size_t kShownBytes = 60;
    node.broken = true;
    std::string found(described(node.kind));
    if (node.is_scalar() && !node.text.empty() && node.text.size() <= kShownBytes)
      found += fmt::format(" ('{}')", node.text);
    const bool is_value = has_shape(node, type) && type.kind != Kind::string && type.kind != Kind::prompt;
    diagnostics_.error(
        node.kind == YamlNode::Kind::null ? where : node.where(), is_value ? "E0404" : "E0403",
        fmt::format("{}: expected {}, found {}", path.empty() ? "the file" : path, expected(type), found),
        hint(node, type));
  }

  Diagnostics& diagnostics_;
};

}  // namespace

void check_format(YamlNode& node, const FormatType& type, const std::string& path, const SourceLocation& where,
                  Diagnostics& diagnostics) {
  FormatChecker(diagnostics).check(node, type, path, where);
}

namespace {

using Kind = FormatType::Kind;

/// Replaces "text" by {key: "text"}; both have the place of the text.
void wrap(YamlNode& node, const std::string& key) {
  YamlEntry entry;
  entry.key.kind = YamlNode::Kind::string;
  entry.key.text = key;
  entry.key.source = node.source;
  entry.key.offset = node.offset;
  entry.key.length = node.length;
  YamlNode map = entry.key;
  map.kind = YamlNode::Kind::map;
  map.text.clear();
  entry.value = std::move(node);
  map.entries.push_back(std::move(entry));
  node = std::move(map);
}

}  // namespace

void expand_short_forms(YamlNode& node, const FormatType& type) {
  if (type.kind == Kind::either) {
    if (!type.short_for.empty() && node.is_scalar() && node.kind != YamlNode::Kind::null) wrap(node, type.short_for);
    const bool is_map = node.kind == YamlNode::Kind::map;
    const auto object =
        std::find_if(type.of.begin(), type.of.end(), [](const FormatType& t) { return t.kind == Kind::object; });
    if (is_map && object != type.of.end()) expand_short_forms(node, *object);
    return;
  }
  if (type.kind == Kind::list) {
    for (YamlNode& item : node.items) expand_short_forms(item, type.of[0]);
  } else if (type.kind == Kind::map) {
    for (YamlEntry& entry : node.entries) expand_short_forms(entry.value, type.of[0]);
  } else if (type.kind == Kind::object) {
    for (const FormatKey& key : format_keys()) {
      YamlEntry* entry = key.object == type.name ? node.entry(key.key) : nullptr;
      if (entry != nullptr) expand_short_forms(entry->value, key.type);
    }
  }
}

// The format's table as a JSON Schema (draft-07) and as the reference page.

namespace {

using OrderedJson = nlohmann::ordered_json;
using Kind = FormatType::Kind;

constexpr const char* kIdPattern = "^[a-z][a-z0-9_]{0,63}$";

/// Returns the names of the table's objects in its order, without the file itself.
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

/// Returns the schema of a number, which may also come from the environment.
OrderedJson number_schema(const FormatType& type, const char* name) {
  OrderedJson number = {{"type", name}};
  number[type.above_low ? "exclusiveMinimum" : "minimum"] = bound(type.low);
  number["maximum"] = bound(type.high);
  return {{"anyOf", {number, {{"$ref", "#/definitions/environment"}}}}};
}

/// The two forms of an object. A `part` is laid over another file, so nothing in it is required, and `null` removes a
/// key.
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

/// Returns the schema of an object with all of its keys.
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

/// Returns the key by which another file supplies what this object leaves out; null: there is none.
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

/// Returns a text as a cell of a Markdown table.
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
