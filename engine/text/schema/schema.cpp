// SPDX-License-Identifier: Apache-2.0
// A document is read in two passes: all schemas in it with their places and names, then what their references mean.
#include "engine/text/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>

#include "engine/base/json/json_reader.h"
#include "engine/text/schema/schema_node.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxMistakes = 16;  // each may name a long place

// Addresses of schemas (RFC 3986), as far as '$id' and '$ref' have them.

std::size_t scheme_end(std::string_view uri) {
  const std::size_t end = uri.find_first_of(":/?#");
  return end == std::string_view::npos || uri[end] != ':' || end == 0 ? 0 : end + 1;
}

std::string without_dots(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool last = end == path.size();
    if (part == "..") {
      if (parts.size() > 1) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
    if (last && (part == "." || part == "..")) parts.emplace_back();
    at = end + 1;
  }
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) out += (i == 0 ? "" : "/") + parts[i];
  return out;
}

/// `reference` as seen from `base`, both without fragments.
std::string resolved_uri(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  if (scheme_end(reference) > 0) return reference;
  const std::size_t scheme = scheme_end(base);
  std::size_t path = scheme;
  if (base.substr(scheme).starts_with("//")) path = std::min(base.find('/', scheme + 2), base.size());
  if (reference.starts_with("//")) return base.substr(0, scheme) + reference;
  if (reference.front() == '/') return base.substr(0, path) + without_dots(reference);
  const std::size_t last = base.find_last_of('/');
  const std::string folder = last == std::string::npos || last < path ? "/" : base.substr(path, last + 1 - path);
  if (base.empty()) return reference;
  return base.substr(0, path) + without_dots(folder + reference);
}

struct SplitUri {
  std::string address, fragment;
};

SplitUri split_uri(const std::string& uri) {
  const std::size_t hash = uri.find('#');
  if (hash == std::string::npos) return {uri, ""};
  return {uri.substr(0, hash), uri.substr(hash + 1)};
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// The names of a JSON pointer (RFC 6901).
std::vector<std::string> names_of_pointer(const std::string& pointer) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    std::string& name = names.emplace_back();
    for (std::size_t i = at + 1; i < end; ++i) {
      const bool escape = pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
      name += escape ? (pointer[++i] == '0' ? '~' : '/') : pointer[i];
    }
    at = end;
  }
  return names;
}

std::string json_pointer(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& name : path) {
    out += '/';
    for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

/// The draft's rules that differ.
bool is_old_draft(const OrderedJson& root) {
  if (!root.is_object() || !root.contains("$schema") || !root["$schema"].is_string()) return false;
  const auto& name = root["$schema"].get_ref<const std::string&>();
  return name.find("draft-07") != name.npos || name.find("draft-06") != name.npos || name.find("draft-04") != name.npos;
}

/// The schemas of a document by their addresses and anchors.
class SchemaAddresses {
 public:
  struct Place {
    const OrderedJson* schema = nullptr;  // null: there is none
    std::vector<std::string> path;
    std::string base;
  };

  explicit SchemaAddresses(const OrderedJson& root) { resources_.emplace("", Place{&root, {}, ""}); }

  /// Enters the names of a schema, and returns the address by which references inside of it are resolved.
  std::string enter(const OrderedJson& schema, const std::vector<std::string>& path, std::string base) {
    if (schema.contains("$id") && schema["$id"].is_string()) {
      const SplitUri id = split_uri(schema["$id"].get<std::string>());
      if (!id.address.empty()) {
        base = resolved_uri(base, id.address);
        resources_.try_emplace(base, Place{&schema, path, base});
      }
      if (!id.fragment.empty()) anchors_.try_emplace({base, id.fragment}, Place{&schema, path, base});
    }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      if (schema.contains(keyword) && schema[keyword].is_string())
        anchors_.try_emplace({base, schema[keyword].get<std::string>()}, Place{&schema, path, base});
    }
    return base;
  }

  bool knows(const std::string& address) const { return resources_.contains(address); }

  Place find(const std::string& address, const std::string& fragment) const {
    const auto resource = resources_.find(address);
    if (resource == resources_.end()) return {};
    if (!fragment.empty() && fragment.front() != '/') {
      const auto anchor = anchors_.find({address, fragment});
      return anchor == anchors_.end() ? Place() : anchor->second;
    }
    Place at = resource->second;
    for (const std::string& name : names_of_pointer(fragment)) {
      const OrderedJson& outer = *at.schema;
      if (outer.is_object() && outer.contains(name)) {
        at.schema = &outer[name];
      } else if (outer.is_array() && !name.empty() && name.size() < 9 &&
                 name.find_first_not_of("0123456789") == std::string::npos &&
                 static_cast<std::size_t>(std::stoi(name)) < outer.size()) {
        at.schema = &outer[static_cast<std::size_t>(std::stoi(name))];
      } else {
        return {};
      }
      at.path.push_back(name);
    }
    return at;
  }

 private:
  std::map<std::string, Place> resources_;
  std::map<std::pair<std::string, std::string>, Place> anchors_;
};

/// What is wrong with a schema, and where.
class SchemaReport {
 public:
  void wrong(const std::string& message, std::string found = {}, std::vector<std::string> expected = {}) {
    if (!full()) mistakes_.push_back(mistake(message, std::move(found), std::move(expected)));
  }
  void unknown(std::string keyword, std::vector<std::string> expected) {
    if (unknown_.size() < kMaxMistakes)
      unknown_.push_back(mistake(kNotSupported, std::move(keyword), std::move(expected)));
  }
  bool full() const { return mistakes_.size() == kMaxMistakes; }

  static constexpr const char* kNotSupported = "this keyword is not supported";

  std::vector<std::string> path;  // of what is being read

  std::vector<SchemaMistake> take_mistakes() { return std::move(mistakes_); }
  std::vector<SchemaMistake> take_unknown() { return std::move(unknown_); }

 private:
  SchemaMistake mistake(const std::string& message, std::string found, std::vector<std::string> expected) const {
    std::string pointer;
    for (const std::string& name : path) pointer += "/" + name;
    return {path, (pointer.empty() ? "the value" : pointer) + ": " + message, std::move(found), std::move(expected)};
  }

  std::vector<SchemaMistake> mistakes_, unknown_;
};

class SchemaReader {
 public:
  using Value = const OrderedJson&;
  /// Reads a keyword's value into the node.
  using Read = void (*)(SchemaReader& reader, Value value, SchemaNode& node);

  explicit SchemaReader(const OrderedJson& root) : root_(root), old_draft_(is_old_draft(root)), addresses_(root) {}

  const SchemaNode* read() {
    const SchemaNode* out = node_at(root_, {}, "");
    for (std::size_t next = 0; next < references_.size(); ++next) resolve(next);  // the list grows
    return out;
  }

  std::deque<SchemaNode> take_nodes() { return std::move(nodes_); }

  // For the readers of keywords.

  SchemaReport& report() { return report_; }

  void refer(Value value, SchemaNode& node) {
    if (!value.is_string()) return report_.wrong("expected a string");
    references_.push_back({&node, report_.path, value.get<std::string>(), base_});
  }

  /// The schema that is the value of what is being read, or of a name or an index in it.
  const SchemaNode* here(Value schema) { return node_at(schema, report_.path, base_); }
  const SchemaNode* below(const std::string& name, Value schema) {
    report_.path.push_back(name);
    const SchemaNode* out = here(schema);
    report_.path.pop_back();
    return out;
  }

 private:
  struct Reference {
    SchemaNode* node;
    std::vector<std::string> path;
    std::string text, base;
  };

  const SchemaNode* node_at(Value schema, std::vector<std::string> path, std::string base) {
    const auto [found, added] = known_.try_emplace(&schema, nullptr);
    if (!added) return found->second;
    SchemaNode& node = nodes_.emplace_back();
    found->second = &node;
    node.pointer = json_pointer(path);
    const std::vector<std::string> outer = std::exchange(report_.path, std::move(path));
    const std::string outer_base = std::exchange(base_, std::move(base));
    read_schema(schema, node);
    report_.path = outer;
    base_ = outer_base;
    return &node;
  }

  void read_schema(Value schema, SchemaNode& node) {
    if (schema.is_boolean()) {
      node.never = !schema.get<bool>();
      return;
    }
    if (!schema.is_object()) return report_.wrong("a schema is a map or a boolean");
    const bool only_reference = old_draft_ && schema.contains("$ref");  // what stands next to it has no meaning
    if (!only_reference) base_ = addresses_.enter(schema, report_.path, base_);
    for (const auto& [keyword, value] : schema.items()) {
      if (report_.full()) return;
      if (only_reference && keyword != "$ref" && keyword != "definitions" && keyword != "$defs") continue;
      report_.path.push_back(keyword);
      read_keyword(keyword, value, node);
      report_.path.pop_back();
    }
    if (!only_reference) join_keywords(schema, node);
  }

  /// Keywords that change what others mean.
  void join_keywords(Value schema, SchemaNode& node) {
    const auto is = [&](const char* keyword, bool value) {
      return schema.contains(keyword) && schema[keyword] == value;
    };
    if (is("nullable", true) && node.types != 0) {
      node.types |= kNullType;
      node.type_names += R"(, "null")";
    }
    if (is("exclusiveMinimum", true)) node.above = std::exchange(node.minimum, std::nullopt);
    if (is("exclusiveMaximum", true)) node.below = std::exchange(node.maximum, std::nullopt);
    if (schema.contains("additionalItems")) {  // the items behind those of a list under 'items'
      const SchemaNode* rest = below("additionalItems", schema["additionalItems"]);
      if (schema.contains("items") && schema["items"].is_array()) node.items = rest;
    }
    if (node.condition == nullptr) node.then = node.otherwise = nullptr;
  }

  void read_keyword(const std::string& keyword, Value value, SchemaNode& node);

  void resolve(std::size_t index) {
    const Reference reference = references_[index];
    report_.path = reference.path;
    const SplitUri target = split_uri(reference.text);
    const std::string address = resolved_uri(reference.base, target.address);
    if (!addresses_.knows(address))
      return report_.wrong(
          fmt::format("references to other documents are not supported, found '{}'; expected a place in this "
                      "schema, such as '#/$defs/name'",
                      reference.text));
    const SchemaAddresses::Place place = addresses_.find(address, percent_decoded(target.fragment));
    if (place.schema == nullptr)
      return report_.wrong(fmt::format(
          "expected the place of a schema in this one, such as '#/$defs/name'; '{}' is none", reference.text));
    reference.node->reference = node_at(*place.schema, place.path, place.base);
  }

  Value root_;
  const bool old_draft_;
  SchemaAddresses addresses_;
  std::deque<SchemaNode> nodes_;
  std::map<const OrderedJson*, const SchemaNode*> known_;
  SchemaReport report_;
  std::string base_;  // address of what is being read
  std::vector<Reference> references_;
};

std::vector<const SchemaNode*> list_of(SchemaReader& reader, const OrderedJson& value) {
  std::vector<const SchemaNode*> out;
  if (!value.is_array() || value.empty()) reader.report().wrong("expected a list of schemas");
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
    out.push_back(reader.below(std::to_string(i), value[i]));
  return out;
}

std::vector<std::pair<std::string, const SchemaNode*>> map_of(SchemaReader& reader, const OrderedJson& value) {
  std::vector<std::pair<std::string, const SchemaNode*>> out;
  if (!value.is_object()) reader.report().wrong("expected a map of schemas");
  for (const auto& [name, schema] : value.items()) {
    if (!value.is_object() || reader.report().full()) break;
    out.emplace_back(name, reader.below(name, schema));
  }
  return out;
}

std::vector<std::string> names_of(SchemaReport& report, const OrderedJson& value) {
  std::vector<std::string> out;
  if (!value.is_array() ||
      !std::all_of(value.begin(), value.end(), [](const OrderedJson& one) { return one.is_string(); }))
    report.wrong("expected a list of names");
  else
    for (const OrderedJson& one : value) out.push_back(one.get<std::string>());
  return out;
}

std::optional<long double> number_of(SchemaReport& report, const OrderedJson& value) {
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return static_cast<long double>(value.get<std::int64_t>());
  if (value.is_number()) return static_cast<long double>(value.get<double>());
  if (!value.is_boolean()) report.wrong("expected a number");  // an exclusive bound of draft 4
  return std::nullopt;
}

std::optional<std::uint64_t> count_of(SchemaReport& report, const OrderedJson& value) {
  if (value.is_number_integer() && value >= 0) return value.get<std::uint64_t>();
  const bool whole =
      value.is_number_float() && value >= 0 && value < 1e18 && std::floor(value.get<double>()) == value.get<double>();
  if (whole) return static_cast<std::uint64_t>(value.get<double>());
  report.wrong("expected an integer of at least 0");
  return std::nullopt;
}

std::optional<SchemaPattern> pattern_of(SchemaReport& report, const OrderedJson& value) {
  if (!value.is_string()) {
    report.wrong("expected a string");
    return std::nullopt;
  }
  try {
    const auto text = value.get<std::string>();
    return SchemaPattern{text, Pattern::of_ecmascript(text)};
  } catch (const std::invalid_argument& error) {
    report.wrong(error.what());
    return std::nullopt;
  }
}

/// 2.0 is written as 2: integers have no fraction.
SchemaValue value_of(const OrderedJson& value) {
  std::string text = value.dump();
  nlohmann::json read = nlohmann::json::parse(text);
  constexpr double kMaxExact = 1e15;
  if (read.is_number_float() && is_whole(read) && std::abs(read.get<double>()) < kMaxExact)
    text = fmt::format("{:.0f}", read.get<double>() + 0.0);  // not -0
  return {std::move(read), std::move(text)};
}

void read_types(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  const OrderedJson types = value.is_array() ? value : OrderedJson::array({value});
  if (types.empty()) return report.wrong("expected a type");
  for (const OrderedJson& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    const auto* found = std::find_if(std::begin(kSchemaTypes), std::end(kSchemaTypes),
                                     [&](const auto& one) { return name == one.first; });
    if (found == std::end(kSchemaTypes)) {
      std::vector<std::string> names;
      for (const auto& one : kSchemaTypes) names.emplace_back(one.first);
      return report.wrong("expected a type of JSON (null, boolean, integer, number, string, array, object)", name,
                          std::move(names));
    }
    node.types |= found->second;
    node.type_names += (node.type_names.empty() ? "" : ", ") + type.dump();
  }
}

void read_values(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  if (!value.is_array() || value.empty()) return report.wrong("expected a list of values");
  node.values.emplace();
  for (const OrderedJson& one : value) node.values->push_back(value_of(one));
}

void read_divisor(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  if (!value.is_number() || value <= 0) return report.wrong("expected a number above 0");
  node.multiple_of = value_of(value).value;
}

void read_items(SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  if (value.is_array())
    node.prefix = list_of(reader, value);
  else
    node.items = reader.here(value);
}

void read_properties(SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  node.names_members = true;
  node.properties = map_of(reader, value);
  node.by_name.insert(node.properties.begin(), node.properties.end());
}

void read_patterns(SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  node.names_members = true;
  for (const auto& [name, schema] : map_of(reader, value)) {
    if (std::optional<SchemaPattern> pattern = pattern_of(reader.report(), name))
      node.patterns.emplace_back(std::move(*pattern), schema);
  }
}

void read_required(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  node.names_members = true;
  node.required = names_of(report, value);
}

void read_dependents(SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  if (!value.is_object()) return reader.report().wrong("expected a map");
  for (const auto& [name, one] : value.items()) {
    if (one.is_array())
      node.dependents.push_back({name, names_of(reader.report(), one), nullptr});
    else
      node.dependents.push_back({name, {}, reader.below(name, one)});
  }
}

void read_flag(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  if (!value.is_boolean()) return report.wrong("expected true or false");
  node.unique = value.get<bool>();
}

void read_format(SchemaReport& report, const OrderedJson& value, SchemaNode& node) {
  if (!value.is_string()) return report.wrong("expected a string");
  node.format = value.get<std::string>();
}

/// Those that read no schemas.
template <auto read>
constexpr SchemaReader::Read kPlain =
    [](SchemaReader& reader, const OrderedJson& value, SchemaNode& node) { read(reader.report(), value, node); };
template <auto member>
constexpr SchemaReader::Read kNumber = [](SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  node.*member = number_of(reader.report(), value);
};
template <auto member>
constexpr SchemaReader::Read kCount = [](SchemaReader& reader, const OrderedJson& value, SchemaNode& node) {
  node.*member = count_of(reader.report(), value);
};
template <auto member>
constexpr SchemaReader::Read kSchema =
    [](SchemaReader& reader, const OrderedJson& value, SchemaNode& node) { node.*member = reader.here(value); };
template <auto member>
constexpr SchemaReader::Read kSchemaList =
    [](SchemaReader& reader, const OrderedJson& value, SchemaNode& node) { node.*member = list_of(reader, value); };
constexpr SchemaReader::Read kAnnotation = [](SchemaReader&, const OrderedJson&, SchemaNode&) {};

const std::map<std::string, SchemaReader::Read>& schema_keywords() {
  using Node = SchemaNode;
  static const std::map<std::string, SchemaReader::Read> all = {
      {"type", kPlain<read_types>},
      {"enum", kPlain<read_values>},
      {"const", [](auto&, const OrderedJson& value, Node& node) { node.constant = value_of(value); }},
      {"minimum", kNumber<&Node::minimum>},
      {"maximum", kNumber<&Node::maximum>},
      {"exclusiveMinimum", kNumber<&Node::above>},
      {"exclusiveMaximum", kNumber<&Node::below>},
      {"multipleOf", kPlain<read_divisor>},
      {"minLength", kCount<&Node::min_length>},
      {"maxLength", kCount<&Node::max_length>},
      {"pattern", [](SchemaReader& reader, const OrderedJson& value,
                     Node& node) { node.pattern = pattern_of(reader.report(), value); }},
      {"format", kPlain<read_format>},
      {"prefixItems", kSchemaList<&Node::prefix>},
      {"items", read_items},
      {"minItems", kCount<&Node::min_items>},
      {"maxItems", kCount<&Node::max_items>},
      {"uniqueItems", kPlain<read_flag>},
      {"contains", kSchema<&Node::contains>},
      {"minContains", kCount<&Node::min_contains>},
      {"maxContains", kCount<&Node::max_contains>},
      {"properties", read_properties},
      {"patternProperties", read_patterns},
      {"additionalProperties", kSchema<&Node::others>},
      {"propertyNames", kSchema<&Node::names>},
      {"required", kPlain<read_required>},
      {"minProperties", kCount<&Node::min_properties>},
      {"maxProperties", kCount<&Node::max_properties>},
      {"dependencies", read_dependents},
      {"dependentRequired", read_dependents},
      {"dependentSchemas", read_dependents},
      {"$ref", [](SchemaReader& reader, const OrderedJson& value, Node& node) { reader.refer(value, node); }},
      {"allOf", kSchemaList<&Node::all_of>},
      {"anyOf", kSchemaList<&Node::any_of>},
      {"oneOf", kSchemaList<&Node::one_of>},
      {"not", kSchema<&Node::excluded>},
      {"if", kSchema<&Node::condition>},
      {"then", kSchema<&Node::then>},
      {"else", kSchema<&Node::otherwise>},
      {"definitions", [](SchemaReader& reader, const OrderedJson& value, Node&) { map_of(reader, value); }},
      {"$defs", [](SchemaReader& reader, const OrderedJson& value, Node&) { map_of(reader, value); }},
      // What join_keywords() or SchemaAddresses reads.
      {"additionalItems", kAnnotation},
      {"nullable", kAnnotation},
      {"$id", kAnnotation},
      {"$anchor", kAnnotation},
      {"$dynamicAnchor", kAnnotation},
      // What constrains nothing.
      {"id", kAnnotation},  // of Zod's registries
      {"title", kAnnotation},
      {"description", kAnnotation},
      {"default", kAnnotation},
      {"example", kAnnotation},
      {"examples", kAnnotation},
      {"deprecated", kAnnotation},
      {"readOnly", kAnnotation},
      {"writeOnly", kAnnotation},
      {"contentEncoding", kAnnotation},
      {"contentMediaType", kAnnotation},
      {"contentSchema", kAnnotation},
      {"discriminator", kAnnotation},
      {"externalDocs", kAnnotation},
      {"xml", kAnnotation},
      {"$schema", kAnnotation},
      {"$comment", kAnnotation},
      {"$vocabulary", kAnnotation},
  };
  return all;
}

constexpr std::string_view kRefusedKeywords[] = {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
                                                 "$recursiveRef"};

void SchemaReader::read_keyword(const std::string& keyword, const OrderedJson& value, SchemaNode& node) {
  if (const auto found = schema_keywords().find(keyword); found != schema_keywords().end())
    return found->second(*this, value, node);
  if (keyword.starts_with("x-")) return;  // an annotation, as in the whole file
  std::vector<std::string> expected;
  for (const auto& entry : schema_keywords()) expected.push_back(entry.first);
  const bool refused =
      std::find(std::begin(kRefusedKeywords), std::end(kRefusedKeywords), keyword) != std::end(kRefusedKeywords);
  if (refused)
    report_.wrong(SchemaReport::kNotSupported, keyword);
  else
    report_.unknown(keyword, std::move(expected));
}

std::vector<const SchemaNode*> schemas_of_same_value(const SchemaNode& node) {
  std::vector<const SchemaNode*> out = node.all_of;
  out.insert(out.end(), node.any_of.begin(), node.any_of.end());
  out.insert(out.end(), node.one_of.begin(), node.one_of.end());
  for (const SchemaNode* one : {node.reference, node.excluded, node.condition, node.then, node.otherwise}) {
    if (one != nullptr) out.push_back(one);
  }
  for (const SchemaNode::Dependent& dependent : node.dependents) {
    if (dependent.schema != nullptr) out.push_back(dependent.schema);
  }
  return out;
}

struct SchemaHeight {
  int height = 0;
  const SchemaNode* wrong = nullptr;  // a node that holds for the same value as itself, or is too high
};

/// Searches in depth from each node, without recursion: chains of references may be long.
SchemaHeight height_of(const std::deque<SchemaNode>& nodes) {
  std::map<const SchemaNode*, int> heights;  // 0: being searched
  struct Open {
    const SchemaNode* node;
    std::vector<const SchemaNode*> inside;
    std::size_t next = 0;
    int height = 0;
  };
  SchemaHeight out;
  for (const SchemaNode& root : nodes) {
    if (heights.contains(&root)) continue;
    std::vector<Open> path;
    path.push_back({&root, schemas_of_same_value(root)});
    heights[&root] = 0;
    while (!path.empty()) {
      Open& top = path.back();
      if (top.next == top.inside.size()) {
        const int height = top.height + 1;
        heights[top.node] = height;
        out.height = std::max(out.height, height);
        if (height > kMaxSchemaHeight) return {height, top.node};
        path.pop_back();
        if (!path.empty()) path.back().height = std::max(path.back().height, height);
        continue;
      }
      const SchemaNode* inside = top.inside[top.next++];
      const auto [found, added] = heights.try_emplace(inside, 0);
      if (!added && found->second == 0) return {0, inside};
      if (added)
        path.push_back({inside, schemas_of_same_value(*inside)});
      else
        top.height = std::max(top.height, found->second);
    }
  }
  return out;
}

std::string message_of(const JsonError& error) {
  return error.kind == JsonError::Kind::syntax ? "the schema is not JSON" : error.what();
}

}  // namespace

struct Schema::Content {
  Content() = default;
  Content(const Content&) = delete;
  std::deque<SchemaNode> nodes;
  const SchemaNode* root = nullptr;
  int height = 0;
  std::vector<SchemaMistake> mistakes, unknown;
  std::optional<JsonError> unread;
};

Schema::Schema(std::string_view text) {
  auto content = std::make_shared<Content>();
  try {
    JsonLimits limits;
    limits.unique_keys = true;
    read_json(text, limits);  // what is parsed below is within the limits
    const OrderedJson root = OrderedJson::parse(text);
    SchemaReader reader(root);
    content->root = reader.read();
    content->nodes = reader.take_nodes();
    content->mistakes = reader.report().take_mistakes();
    content->unknown = reader.report().take_unknown();
    const SchemaHeight found = height_of(content->nodes);
    content->height = found.height;
    if (found.wrong != nullptr && content->mistakes.empty())
      content->mistakes.push_back(
          {names_of_pointer(found.wrong->pointer),
           fmt::format("{}: {}", found.wrong->pointer.empty() ? "the schema" : found.wrong->pointer,
                       found.height == 0 ? "it refers to itself without a value between"
                                         : fmt::format("more than {} references and alternatives stand within one "
                                                       "another",
                                                       kMaxSchemaHeight)),
           {},
           {}});
  } catch (const JsonError& error) {
    content->unread = error;
    content->mistakes.push_back({{}, message_of(error), {}, {}});
  }
  content_ = std::move(content);
}

const SchemaNode& Schema::root() const {
  if (content_->unread) throw JsonError(*content_->unread);
  return *content_->root;
}

int Schema::height() const { return content_->height; }

std::vector<SchemaMistake> Schema::mistakes(UnknownKeywords unknown) const {
  std::vector<SchemaMistake> out = content_->mistakes;
  if (unknown == UnknownKeywords::refused) out.insert(out.end(), content_->unknown.begin(), content_->unknown.end());
  if (out.size() > kMaxMistakes) out.resize(kMaxMistakes);
  return out;
}

std::vector<SchemaMistake> json_schema_mistakes(const std::string& schema) { return Schema(schema).mistakes(); }

namespace {

/// True if the schema, or what it refers to, is one of objects.
bool is_of_objects(const SchemaNode& node) {
  if (node.types != 0) return (node.types & kObjectType) != 0;
  if ((implied_types(node) & kObjectType) != 0) return true;
  if (node.reference != nullptr && is_of_objects(*node.reference)) return true;
  for (const auto* list : {&node.all_of, &node.any_of, &node.one_of}) {
    if (std::any_of(list->begin(), list->end(), [](const SchemaNode* one) { return is_of_objects(*one); })) return true;
  }
  return false;
}

}  // namespace

std::vector<SchemaMistake> parameters_mistakes(const std::string& schema, UnknownKeywords unknown) {
  const Schema read(schema);
  std::vector<SchemaMistake> mistakes = read.mistakes(unknown);
  if (mistakes.empty() && !is_of_objects(read.root()))
    mistakes.push_back({{}, "expected the schema of an object, with 'properties'", {}, {}});
  return mistakes;
}

std::string check_json_schema(const std::string& schema) {
  const std::vector<SchemaMistake> mistakes = json_schema_mistakes(schema);
  return mistakes.empty() ? "" : mistakes.front().text;
}

std::string check_parameters(const std::string& schema, UnknownKeywords unknown) {
  const std::vector<SchemaMistake> mistakes = parameters_mistakes(schema, unknown);
  return mistakes.empty() ? "" : mistakes.front().text;
}

}  // namespace baton
