// SPDX-License-Identifier: Apache-2.0
// The check of an answer by a Schema.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "engine/base/hash.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/schema/schema.h"
#include "engine/text/schema/schema_node.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kUnitsOfStep = 64;  // Effort of one value against one schema

std::string joined(const Json& words) {
  std::string out;
  for (const Json& word : words) out += (out.empty() ? "" : ", ") + json_text(word);
  return out;
}

std::string at(const std::string& pointer, const std::string& message) {
  return (pointer.empty() ? "the value" : pointer) + ": " + message;
}

long double number_of(const Json& value) {
  if (value.is_number_unsigned()) return static_cast<long double>(value.get<std::uint64_t>());
  if (value.is_number_integer()) return static_cast<long double>(value.get<std::int64_t>());
  return static_cast<long double>(value.get<double>());
}

std::string number_text(long double value) {
  return std::floor(value) == value && std::abs(value) < 1e20L ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{}", static_cast<double>(value));
}

/// A number as digits times a power of ten: what its shortest text says.
struct Decimal {
  std::uint64_t digits = 0;
  int exponent = 0;
};

Decimal decimal_of(const Json& value) {
  if (value.is_number_unsigned()) return {value.get<std::uint64_t>(), 0};
  if (value.is_number_integer()) {
    const auto whole = value.get<std::int64_t>();
    return {whole < 0 ? ~static_cast<std::uint64_t>(whole) + 1 : static_cast<std::uint64_t>(whole), 0};
  }
  const std::string shortest = fmt::format("{}", std::abs(value.get<double>()));
  Decimal out;
  bool fraction = false;
  std::size_t i = 0;
  for (; i < shortest.size() && shortest[i] != 'e'; ++i) {
    if (shortest[i] == '.') {
      fraction = true;
      continue;
    }
    if (out.digits > 999'999'999'999'999'999u) {  // only zeros follow
      out.exponent += fraction ? 0 : 1;
      continue;
    }
    out.digits = out.digits * 10 + static_cast<std::uint64_t>(shortest[i] - '0');
    out.exponent -= fraction ? 1 : 0;
  }
  if (i < shortest.size()) out.exponent += std::stoi(shortest.substr(i + 1));
  return out;
}

/// Whether the divisor, which is above 0, divides the value as the decimal numbers that they are written as.
bool divides(const Json& divisor, const Json& value) {
  __extension__ using Wide = unsigned __int128;
  const Decimal by = decimal_of(divisor), number = decimal_of(value);
  if (number.digits == 0) return true;
  if (by.digits == 0) return false;
  int shift = number.exponent - by.exponent;
  if (shift >= 0) {
    Wide rest = number.digits % by.digits;
    for (; shift > 0 && rest != 0; --shift) rest = rest * 10 % by.digits;
    return rest == 0;
  }
  constexpr int kMaxShift = 19;  // beyond it the divisor is greater than the digits
  if (shift < -kMaxShift) return false;
  Wide scaled = by.digits;
  for (; shift < 0; ++shift) scaled *= 10;
  return number.digits % scaled == 0;
}

/// A text that is the same for equal values: 1.0 is 1, and members are sorted.
void append_canonical(const Json& value, std::string& out) {
  if (value.is_array() || value.is_object()) {
    out += value.is_array() ? '[' : '{';
    for (const auto& [name, one] : value.items()) {
      if (value.is_object()) out += json_text(Json(name)) + ':';
      append_canonical(one, out);
      out += ',';
    }
    out += value.is_array() ? ']' : '}';
  } else if (value.is_number_float() && is_whole(value) && std::abs(value.get<double>()) < 1e15) {
    out += fmt::format("{:.0f}", value.get<double>() + 0.0);  // not -0
  } else {
    out += json_text(value);
  }
}

std::string check_bounds(long double value, const SchemaNode& node, const std::string& pointer) {
  const auto wrong = [&](const char* relation, long double bound) {
    return at(pointer, fmt::format("{} is {} {}", number_text(value), relation, number_text(bound)));
  };
  if (node.minimum && value < *node.minimum) return wrong("less than", *node.minimum);
  if (node.maximum && value > *node.maximum) return wrong("more than", *node.maximum);
  if (node.above && value <= *node.above) return wrong("not more than", *node.above);
  if (node.below && value >= *node.below) return wrong("not less than", *node.below);
  return {};
}

std::string check_size(std::size_t size, const std::optional<std::uint64_t>& least,
                       const std::optional<std::uint64_t>& most, const char* unit, const std::string& pointer) {
  if (least && size < *least)
    return at(pointer, fmt::format("has {} {}, at least {} are expected", size, unit, *least));
  if (most && size > *most) return at(pointer, fmt::format("has {} {}, at most {} are expected", size, unit, *most));
  return {};
}

}  // namespace

SchemaTypes types_of_value(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_string()) return kStringType;
  if (value.is_array()) return kArrayType;
  if (value.is_object()) return kObjectType;
  return is_whole(value) ? kNumberType | kIntegerType : kNumberType;
}

bool is_whole(const Json& value) {
  if (value.is_number_float()) return std::floor(value.get<double>()) == value.get<double>();
  return value.is_number_integer();
}

SchemaTypes implied_types(const SchemaNode& node) {
  SchemaTypes out = 0;
  if (node.names_members || node.others || node.names || node.min_properties || node.max_properties ||
      !node.dependents.empty())
    out |= kObjectType;
  if (node.items || !node.prefix.empty() || node.min_items || node.max_items || node.unique || node.contains)
    out |= kArrayType;
  if (node.min_length || node.max_length || node.pattern || !node.format.empty()) out |= kStringType;
  if (node.minimum || node.maximum || node.above || node.below || node.multiple_of) out |= kNumberType;
  return out;
}

SchemaCheck::SchemaCheck(std::size_t bytes) : effort_(effort_for_output(bytes)) {}

std::string SchemaCheck::check(const Json& value, const SchemaNode& node, const std::string& pointer, int depth) {
  if (depth > kMaxSchemaDepth)
    return at(pointer, fmt::format("too much nesting for the schema: expected at most {} levels", kMaxSchemaDepth));
  const std::size_t characters = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
  if (!effort_.take(kUnitsOfStep + pointer.size() + characters))
    throw std::runtime_error("the check by the schema needs too many steps");
  if (node.never) return at(pointer, "is not allowed");
  if (node.reference != nullptr) {
    std::string wrong = check(value, *node.reference, pointer, depth + 1);
    if (!wrong.empty()) return wrong;
  }
  std::string wrong = check_own(value, node, pointer, depth);
  return wrong.empty() ? check_combined(value, node, pointer, depth) : wrong;
}

std::string SchemaCheck::check_own(const Json& value, const SchemaNode& node, const std::string& pointer, int depth) {
  if (node.types != 0 && (node.types & types_of_value(value)) == 0)
    return at(pointer, fmt::format("expected {}, found {}", node.type_names, value.type_name()));
  if (node.values) {
    const auto same = [&](const SchemaValue& one) { return one.value == value; };
    if (std::none_of(node.values->begin(), node.values->end(), same)) {
      Json words = Json::array();
      for (const SchemaValue& one : *node.values) words.push_back(one.value);
      return at(pointer, "expected one of " + joined(words));
    }
  }
  if (node.constant && value != node.constant->value) return at(pointer, "expected " + json_text(node.constant->value));
  std::string wrong;
  if (value.is_number()) {
    wrong = check_bounds(number_of(value), node, pointer);
    if (wrong.empty() && node.multiple_of && !divides(*node.multiple_of, value))
      wrong = at(pointer, fmt::format("{} is no multiple of {}", json_text(value), json_text(*node.multiple_of)));
  }
  if (value.is_string()) wrong = check_string(value.get_ref<const std::string&>(), node, pointer);
  if (value.is_array()) wrong = check_array(value, node, pointer, depth);
  if (value.is_object()) wrong = check_object(value, node, pointer, depth);
  return wrong;
}

std::string SchemaCheck::check_combined(const Json& value, const SchemaNode& node, const std::string& pointer,
                                        int depth) {
  for (const SchemaNode* part : node.all_of) {
    std::string wrong = check(value, *part, pointer, depth + 1);
    if (!wrong.empty()) return wrong;
  }
  if (!node.any_of.empty() || !node.one_of.empty()) {
    std::string wrong = check_alternatives(value, node, pointer, depth);
    if (!wrong.empty()) return wrong;
  }
  if (node.excluded != nullptr && check(value, *node.excluded, pointer, depth + 1).empty())
    return at(pointer, "fits a schema of 'not'");
  if (node.condition != nullptr) {
    const bool holds = check(value, *node.condition, pointer, depth + 1).empty();
    const SchemaNode* branch = holds ? node.then : node.otherwise;
    if (branch != nullptr) return check(value, *branch, pointer, depth + 1);
  }
  return {};
}

std::string SchemaCheck::check_alternatives(const Json& value, const SchemaNode& node, const std::string& pointer,
                                            int depth) {
  std::string first;
  const auto fits = [&](const SchemaNode* alternative) {
    const std::string wrong = check(value, *alternative, pointer, depth + 1);
    if (first.empty()) first = wrong;
    return wrong.empty();
  };
  if (!node.any_of.empty() && std::none_of(node.any_of.begin(), node.any_of.end(), fits))
    return first + " (and no other alternative fits)";
  first.clear();
  const auto count = std::count_if(node.one_of.begin(), node.one_of.end(), fits);
  if (!node.one_of.empty() && count == 0) return first + " (and no other alternative fits)";
  if (count > 1) return at(pointer, fmt::format("fits {} alternatives of 'oneOf', expected one", count));
  return {};
}

std::string SchemaCheck::check_string(const std::string& value, const SchemaNode& node, const std::string& pointer) {
  if (node.min_length || node.max_length) {
    const std::string wrong = check_size(utf8::count(value), node.min_length, node.max_length, "characters", pointer);
    if (!wrong.empty()) return wrong;
  }
  if (node.pattern && !node.pattern->compiled.search(value, effort_))
    return at(pointer, fmt::format("does not match '{}'", node.pattern->text));
  const StringFormat* format = node.format.empty() ? nullptr : string_format(node.format);
  if (format != nullptr && !format->holds(value, format->regex, effort_))
    return at(pointer, fmt::format("is no text of the format '{}'", node.format));
  return {};
}

std::string SchemaCheck::check_array(const Json& value, const SchemaNode& node, const std::string& pointer, int depth) {
  std::string wrong = check_size(value.size(), node.min_items, node.max_items, "items", pointer);
  for (std::size_t i = 0; i < value.size() && wrong.empty(); ++i) {
    const SchemaNode* schema = i < node.prefix.size() ? node.prefix[i] : node.items;
    if (schema == nullptr) break;
    wrong = check(value[i], *schema, fmt::format("{}/{}", pointer, i), depth + 1);
  }
  if (wrong.empty() && node.unique) wrong = check_unique(value, pointer);
  if (wrong.empty() && node.contains != nullptr) wrong = check_contains(value, node, pointer, depth);
  return wrong;
}

std::string SchemaCheck::check_unique(const Json& value, const std::string& pointer) {
  std::unordered_set<std::string, SeededHash> seen;
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string text;
    append_canonical(value[i], text);
    if (!effort_.take(kUnitsOfStep + text.size()))
      throw std::runtime_error("the check by the schema needs too many steps");
    if (!seen.insert(std::move(text)).second)
      return at(fmt::format("{}/{}", pointer, i), "is there twice, expected different items");
  }
  return {};
}

std::string SchemaCheck::check_contains(const Json& value, const SchemaNode& node, const std::string& pointer,
                                        int depth) {
  std::uint64_t count = 0;
  for (const Json& item : value) count += check(item, *node.contains, pointer, depth + 1).empty() ? 1 : 0;
  const std::uint64_t least = node.min_contains.value_or(1);
  if (count < least)
    return at(pointer, fmt::format("has {} items that fit 'contains', at least {} are expected", count, least));
  if (node.max_contains && count > *node.max_contains)
    return at(pointer,
              fmt::format("has {} items that fit 'contains', at most {} are expected", count, *node.max_contains));
  return {};
}

std::string SchemaCheck::check_object(const Json& value, const SchemaNode& node, const std::string& pointer,
                                      int depth) {
  std::vector<std::string> missing;
  for (const std::string& name : node.required) {
    if (!value.contains(name)) missing.push_back(fmt::format("'{}'", name));
  }
  if (!missing.empty()) {
    const bool one = missing.size() == 1;
    return at(pointer,
              fmt::format("the key{} {} {} missing", one ? "" : "s", fmt::join(missing, ", "), one ? "is" : "are"));
  }
  std::string wrong = check_size(value.size(), node.min_properties, node.max_properties, "members", pointer);
  for (const auto& [name, member] : value.items()) {
    if (!wrong.empty()) return wrong;
    wrong = check_member(name, member, node, pointer, depth);
  }
  return wrong.empty() && !node.dependents.empty() ? check_dependents(value, node, pointer, depth) : wrong;
}

std::string SchemaCheck::check_member(const std::string& name, const Json& member, const SchemaNode& node,
                                      const std::string& pointer, int depth) {
  const std::string below = pointer + "/" + name;
  if (node.names != nullptr) {
    std::string wrong = check(Json(name), *node.names, below, depth + 1);
    if (!wrong.empty()) return wrong + " (as a name)";
  }
  const SchemaNode* own = node.property(name);
  if (own != nullptr) {
    std::string wrong = check(member, *own, below, depth + 1);
    if (!wrong.empty()) return wrong;
  }
  bool known = own != nullptr;
  for (const auto& [pattern, schema] : node.patterns) {
    if (!pattern.compiled.search(name, effort_)) continue;
    known = true;
    std::string wrong = check(member, *schema, below, depth + 1);
    if (!wrong.empty()) return wrong;
  }
  return known || node.others == nullptr ? "" : check(member, *node.others, below, depth + 1);
}

std::string SchemaCheck::check_dependents(const Json& value, const SchemaNode& node, const std::string& pointer,
                                          int depth) {
  for (const SchemaNode::Dependent& dependent : node.dependents) {
    if (!value.contains(dependent.name)) continue;
    for (const std::string& name : dependent.required) {
      if (!value.contains(name))
        return at(pointer, fmt::format("the key '{}' is missing, which '{}' needs", name, dependent.name));
    }
    std::string wrong = dependent.schema == nullptr ? "" : check(value, *dependent.schema, pointer, depth + 1);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string check_json(std::string_view text, const Schema& schema) {
  try {
    const JsonDocument value = read_json(text);
    return SchemaCheck(text.size()).check(*value, schema.root(), "");
  } catch (const JsonError& error) {
    return error.kind == JsonError::Kind::limit ? error.what() : "the text is not JSON";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::string check_member(const std::string& name, std::string_view value, const Schema& schema) {
  std::set<const SchemaNode*> seen;
  std::vector<const SchemaNode*> nodes{&schema.root()};
  try {
    const JsonDocument member = read_json(value);
    SchemaCheck check(value.size());
    while (!nodes.empty()) {
      const SchemaNode* node = nodes.back();
      nodes.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (std::string wrong = check.check_member(name, *member, *node, "", 0); !wrong.empty()) return wrong;
      nodes.push_back(node->reference);
      nodes.insert(nodes.end(), node->all_of.begin(), node->all_of.end());
    }
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

std::string check_json(std::string_view text, const std::string& schema) { return check_json(text, Schema(schema)); }

}  // namespace baton
