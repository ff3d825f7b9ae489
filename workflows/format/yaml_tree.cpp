// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_tree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/utf8.h"
#include "workflows/format/format_table.h"

namespace baton {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text, bool (*digit)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), digit);
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  return text;
}

bool is_integer(std::string_view text) {
  if (text.starts_with("0x")) {
    return all_digits(text.substr(2),
                      [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
  }
  if (text.starts_with("0o")) return all_digits(text.substr(2), [](char c) { return c >= '0' && c <= '7'; });
  return all_digits(without_sign(text), is_digit);
}

/// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?, and the infinities and NaN.
bool is_number(std::string_view text) {
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return true;
  text = without_sign(text);
  if (text == ".inf" || text == ".Inf" || text == ".INF") return true;
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    if (!all_digits(without_sign(text.substr(exponent + 1)), is_digit)) return false;
    text = text.substr(0, exponent);
  }
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) return all_digits(text, is_digit);
  const std::string_view whole = text.substr(0, point), fraction = text.substr(point + 1);
  if (whole.empty()) return all_digits(fraction, is_digit);
  return all_digits(whole, is_digit) && (fraction.empty() || all_digits(fraction, is_digit));
}

}  // namespace

TextPlaces::TextPlaces(const YamlNode& text) : text_(text), file_(text.source->text()) {
  // In quotes '{{' may be written as escapes, so that it need not be in the file; elsewhere it is near.
  const std::string_view marked = file_.substr(std::min(text.offset, file_.size()), text.length);
  const bool quoted =
      marked.size() > 1 && marked.front() == marked.back() && (marked.front() == '"' || marked.front() == '\'');
  if (quoted) file_ = file_.substr(0, text.offset + text.length);
}

SourceLocation TextPlaces::at(std::size_t text_offset, std::size_t length_bytes) {
  // The n-th '{{' of the text is the n-th '{{' of the source from the scalar on, whatever the style of the scalar:
  // folding, indentation and quotes change only what lies between.
  const std::string_view value(text_.text);
  const std::size_t opening = value.rfind("{{", text_offset);
  if (opening == std::string_view::npos) return text_.where();
  if (!in_file_) in_file_ = file_.find("{{", text_.offset);
  const std::string_view ahead_of_it = value.substr(0, opening);
  for (std::size_t next; (next = ahead_of_it.find("{{", passed_)) != std::string_view::npos; passed_ = next + 2) {
    if (*in_file_ != std::string_view::npos) in_file_ = file_.find("{{", *in_file_ + 2);
  }
  const std::size_t at = *in_file_;
  if (at == std::string_view::npos) return text_.where();
  const std::size_t ahead = text_offset - opening;
  const bool same = file_.substr(at, ahead + length_bytes) == value.substr(opening, ahead + length_bytes);
  return same ? text_.source->at(at + ahead, length_bytes) : text_.source->at(at, 2);
}

TreeSize size_of(const YamlNode& node) {
  TreeSize size{1, node.text.size(), 0};
  const auto add = [&](const YamlNode& part) {
    const TreeSize more = size_of(part);
    size.nodes += more.nodes;
    size.bytes += more.bytes;
    size.levels = std::max(size.levels, more.levels + 1);
  };
  for (const YamlNode& item : node.items) add(item);
  for (const YamlEntry& entry : node.entries) {
    add(entry.key);
    add(entry.value);
  }
  return size;
}

SourceLocation YamlNode::part(std::size_t text_offset, std::size_t length_bytes) const {
  const std::string_view file(source->text());
  const std::size_t begin = std::min(offset + (plain ? 0 : 1), file.size());
  return file.substr(begin, text.size()) == text ? source->at(begin + text_offset, length_bytes) : where();
}

const YamlEntry* YamlNode::entry(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const YamlEntry& e) { return e.key.text == key; });
  return found == entries.end() ? nullptr : &*found;
}

YamlEntry* YamlNode::entry(std::string_view key) { return const_cast<YamlEntry*>(std::as_const(*this).entry(key)); }

std::string_view described(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::boolean:
      return "a boolean";
    case YamlNode::Kind::integer:
      return "an integer";
    case YamlNode::Kind::number:
      return "a number";
    case YamlNode::Kind::string:
      return "a string";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "";
}

YamlNode::Kind kind_of_plain(std::string_view text) {
  using Kind = YamlNode::Kind;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Kind::null;
  if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" || text == "FALSE") {
    return Kind::boolean;
  }
  if (is_integer(text)) return Kind::integer;
  return is_number(text) ? Kind::number : Kind::string;
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x")) base = 16;
  if (text.starts_with("0o")) base = 8;
  if (base != 10) text.remove_prefix(2);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> number_of(std::string_view text) {
  if (const auto whole = integer_of(text)) return static_cast<double>(*whole);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

namespace {

constexpr std::size_t kMaxChainFiles = 16;

std::filesystem::path real_path(const std::filesystem::path& file) {
  std::error_code code;
  auto found = std::filesystem::weakly_canonical(file, code);
  return code ? file.lexically_normal() : found;
}

/// Follows `extends`; `chain` holds the files on the way here.
std::optional<YamlNode> load_chain(const SourcePtr& source, std::vector<std::filesystem::path> chain,
                                   Diagnostics& diagnostics) {
  std::optional<YamlNode> child = parse_yaml(source, diagnostics);
  if (!child || child->kind != YamlNode::Kind::map) return child;
  expand_short_forms(*child, format_file());  // so that {dtype: f32} can be merged into a path
  YamlEntry* extends = child->entry("extends");
  if (extends == nullptr || extends->value.kind != YamlNode::Kind::string) return child;

  const SourceLocation where = extends->value.where();
  const Resolved name = resolve_environment(extends->value.text, Secrets::refuse);
  if (!name.error.empty()) {
    diagnostics.error(where, name.code, name.error);
    return std::nullopt;
  }
  const std::filesystem::path file = (source->folder() / name.text).lexically_normal();
  if (std::find(chain.begin(), chain.end(), real_path(file)) != chain.end()) {
    diagnostics.error(where, "E0505", fmt::format("'{}' extends itself", file.string()));
    return std::nullopt;
  }
  if (chain.size() == kMaxChainFiles) {
    diagnostics.error(where, "E0505",
                      fmt::format("a chain of more than {} files that extend each other", kMaxChainFiles));
    return std::nullopt;
  }
  chain.push_back(real_path(file));
  const SourcePtr base_source = read_source(file, where, diagnostics);
  if (!base_source) return std::nullopt;
  std::optional<YamlNode> base = load_chain(base_source, std::move(chain), diagnostics);
  if (!base) return std::nullopt;
  if (base->kind != YamlNode::Kind::map) {
    diagnostics.error(
        where, "E0505",
        fmt::format("'{}' cannot be extended: expected a map, found {}", file.string(), described(base->kind)));
    return std::nullopt;
  }
  std::erase_if(child->entries, [](const YamlEntry& entry) { return entry.key.text == "extends"; });
  return merged(std::move(*base), std::move(*child));
}

/// The element of a list that a part of a path names.
YamlNode* element(YamlNode& list, std::string_view name) {
  if (const auto index = integer_of(name)) {
    const bool inside = *index >= 0 && static_cast<std::size_t>(*index) < list.items.size();
    return inside ? &list.items[static_cast<std::size_t>(*index)] : nullptr;
  }
  for (const char* key : {"id", "agent"}) {
    for (YamlNode& item : list.items) {
      const YamlEntry* entry = item.entry(key);
      if (entry != nullptr && entry->value.text == name) return &item;
    }
  }
  const auto same = std::find_if(list.items.begin(), list.items.end(),
                                 [&](const YamlNode& i) { return i.is_scalar() && i.text == name; });
  return same == list.items.end() ? nullptr : &*same;
}

/// True for `agents`, `models`, ...: what stands below one of their names is a part of something that the file
/// declares.
bool is_map_of_objects(std::string_view key) {
  const auto keys = format_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const FormatKey& known) {
    if (!known.object.empty() || known.key != key || known.type.kind != FormatType::Kind::map) return false;
    const FormatType::Kind of = known.type.of.front().kind;
    return of == FormatType::Kind::object || of == FormatType::Kind::either;
  });
}

}  // namespace

YamlNode merged(YamlNode base, YamlNode child) {
  if (base.kind != YamlNode::Kind::map || child.kind != YamlNode::Kind::map) return child;
  std::unordered_map<std::string, std::size_t, SeededHash> places;
  for (std::size_t i = 0; i < base.entries.size(); ++i) places.emplace(base.entries[i].key.text, i);
  std::vector<bool> removed(base.entries.size(), false);
  for (YamlEntry& entry : child.entries) {
    const auto found = places.find(entry.key.text);
    if (found == places.end()) {
      base.entries.push_back(std::move(entry));
    } else if (entry.value.kind == YamlNode::Kind::null) {
      removed[found->second] = true;
    } else {
      YamlEntry& old = base.entries[found->second];
      old.value = merged(std::move(old.value), std::move(entry.value));
      old.key = std::move(entry.key);
    }
  }
  child.entries.clear();
  for (std::size_t i = 0; i < base.entries.size(); ++i) {
    if (i >= removed.size() || !removed[i]) child.entries.push_back(std::move(base.entries[i]));
  }
  return child;
}

std::optional<YamlNode> load_tree(const SourcePtr& source, Diagnostics& diagnostics) {
  return load_chain(source, {real_path(source->name())}, diagnostics);
}

void set_value(YamlNode& root, const std::string& path, const std::string& value, Diagnostics& diagnostics) {
  const std::string name = "--set " + path;
  const auto fail = [&](std::string message) { diagnostics.error({name, 0, 0, 1}, "E0405", std::move(message)); };
  if (path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos) {
    return fail("a part of the path is empty");
  }
  const SourcePtr source = make_source(name, root.source->folder(), value, diagnostics);
  if (!source) return;
  std::optional<YamlNode> parsed = parse_yaml(source, diagnostics);
  if (!parsed) return;

  YamlNode* node = &root;
  const std::string top = path.substr(0, path.find('.'));
  for (std::size_t at = 0, depth = 0; at <= path.size(); ++depth) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    at = dot + 1;
    if (node->kind == YamlNode::Kind::list) {
      node = element(*node, part);
      if (node == nullptr) return fail(fmt::format("the list has no '{}'", part));
      continue;
    }
    if (node->kind == YamlNode::Kind::null) node->kind = YamlNode::Kind::map;
    if (node->kind != YamlNode::Kind::map) {
      return fail(fmt::format("'{}' cannot be set: expected a map, found {}", part, described(node->kind)));
    }
    if (YamlEntry* entry = node->entry(part)) {
      node = &entry->value;
      continue;
    }
    if (depth == 1 && at <= path.size() && is_map_of_objects(top)) {
      std::vector<std::string> names;
      for (const YamlEntry& entry : node->entries) names.push_back(entry.key.text);
      const std::string hint = names.empty() ? "the file declares none" : diagnostics.suggestion(part, names);
      return fail(fmt::format("{} has no '{}'; {}", top, part,
                              hint.empty() ? fmt::format("the file has: {}", fmt::join(names, ", ")) : hint));
    }
    YamlEntry added;
    added.key.kind = YamlNode::Kind::string;
    added.key.text = part;
    added.key.source = added.value.source = source;
    node->entries.push_back(std::move(added));
    node = &node->entries.back().value;
  }
  *node = std::move(*parsed);
  expand_short_forms(root, format_file());
}

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return nullptr;
    case YamlNode::Kind::boolean:
      return node.text[0] == 't' || node.text[0] == 'T';
    case YamlNode::Kind::integer:
      if (const auto value = integer_of(node.text)) return *value;
      break;
    case YamlNode::Kind::number:
      if (const auto value = number_of(node.text)) return *value;
      break;
    case YamlNode::Kind::string:
      break;
    case YamlNode::Kind::list: {
      OrderedJson list = OrderedJson::array();
      for (const YamlNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case YamlNode::Kind::map: {
      OrderedJson map = OrderedJson::object();
      for (const YamlEntry& entry : node.entries) map[entry.key.text] = json_of(entry.value);
      return map;
    }
  }
  return node.text;
}

/// Returns the key or item that the mistake names: the key if that word is wrong, otherwise its value.
SourceLocation place_of(const YamlNode& root, const SchemaMistake& mistake) {
  const YamlNode* node = &root;
  SourceLocation where = node->where();
  for (const std::string& name : mistake.path) {
    if (node->kind == YamlNode::Kind::list) {
      const auto index = integer_of(name);
      if (!index || *index < 0 || static_cast<std::size_t>(*index) >= node->items.size()) return where;
      node = &node->items[static_cast<std::size_t>(*index)];
      where = node->where();
      continue;
    }
    const YamlEntry* entry = node->entry(name);
    if (entry == nullptr) return where;
    where = mistake.found == name || !entry->value.is_scalar() ? entry->key.where() : entry->value.where();
    node = &entry->value;
  }
  return where;
}

}  // namespace

void report_schema_mistakes(const YamlNode& node, const std::vector<SchemaMistake>& mistakes, const std::string& owner,
                            Diagnostics& diagnostics) {
  for (const SchemaMistake& mistake : mistakes)
    diagnostics.error(place_of(node, mistake), "E0408", owner + ": " + mistake.text,
                      diagnostics.suggestion(mistake.found, mistake.expected));
}

std::string to_json(const YamlNode& node) { return json_of(node).dump(); }

namespace {

bool is_variable_name(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos;
}

/// The value of what stands between ${ and }, which comes next in `out`, with an error there.
std::string value_of(std::string_view expression, Secrets secrets, Resolved& out) {
  const auto fail = [&](const char* code, std::string message) {
    out.code = code;
    out.error = std::move(message);
    return std::string();
  };
  if (expression.starts_with("secret:")) {
    if (secrets == Secrets::keep) return fmt::format("${{{}}}", expression);
    return fail("E0504", "a secret may only be used in the options of a tool and as the key of a model");
  }
  expression.remove_prefix(std::string_view("env:").size());
  const std::size_t colon = expression.find(":-");
  const std::string name(expression.substr(0, colon));
  if (!is_variable_name(name))
    return fail("E0503", fmt::format("'{}' is not the name of an environment variable", name));
  const char* value = std::getenv(name.c_str());
  const bool has_default = colon != std::string_view::npos;
  if (value != nullptr && (*value != '\0' || !has_default)) {
    std::string text = utf8::repaired(value);
    if (!text.empty()) out.values.push_back({out.text.size(), out.text.size() + text.size()});
    return text;
  }
  if (has_default) return std::string(expression.substr(colon + 2));
  return fail("E0503", fmt::format("environment variable '{}' is not set and has no default", name));
}

}  // namespace

Resolved resolve_environment(std::string_view text, Secrets secrets) {
  Resolved out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t dollar = text.find('$', at);
    out.text += text.substr(at, dollar - at);
    if (dollar == std::string_view::npos) break;
    const std::string_view rest = text.substr(dollar);
    if (rest.starts_with("$${")) {
      out.text += "${";
      out.changed = true;
      at = dollar + 3;
      continue;
    }
    const bool known = rest.starts_with("${env:") || rest.starts_with("${secret:");
    const std::size_t close = known ? text.find('}', dollar) : std::string_view::npos;
    if (known && close == std::string_view::npos) {
      out.code = "E0503";
      out.error = "'${' is not closed with '}'";
      return out;
    }
    if (!known) {
      out.text += '$';
      at = dollar + 1;
      continue;
    }
    out.text += value_of(text.substr(dollar + 2, close - dollar - 2), secrets, out);
    if (!out.error.empty()) return out;
    out.changed = true;
    at = close + 1;
  }
  return out;
}

}  // namespace baton
