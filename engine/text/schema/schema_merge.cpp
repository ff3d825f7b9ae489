// SPDX-License-Identifier: Apache-2.0
#include "engine/text/schema/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/hash.h"
#include "engine/text/constrain/grammar.h"

namespace baton::constrain {
namespace {

OrderedJson as_list(const OrderedJson& value) { return value.is_array() ? value : OrderedJson::array({value}); }

bool has(const OrderedJson& list, const OrderedJson& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

OrderedJson common_types(const OrderedJson& a, const OrderedJson& b) {
  const OrderedJson one = as_list(a), other = as_list(b);
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& type : one) {
    if (has(other, type) || (type == "integer" && has(other, "number"))) out.push_back(type);
    if (type == "number" && has(other, "integer") && !has(other, "number")) out.push_back("integer");
  }
  return out;
}

[[noreturn]] void fail(const std::string& pointer, const std::string& keyword) {
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
      own = merged(own, schema, pointer + "/properties/" + name);
    }
  }
  return out;
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  static constexpr const char* kNames[] = {"title",   "description", "default",  "examples",
                                           "$schema", "$id",         "$comment", "definitions"};
  return keyword.starts_with("x-") || std::find(std::begin(kNames), std::end(kNames), keyword) != std::end(kNames);
}

OrderedJson merged(const OrderedJson& a, const OrderedJson& b, const std::string& pointer) {
  if (a == false || b == false) return false;
  if (a == true) return b;
  if (b == true) return a;
  if (a.contains("$ref") || b.contains("$ref")) fail(pointer, "$ref");
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
      fail(pointer, keyword);
    }
  }
  // Where one allows no other properties, those of the other may not be there.
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->contains("additionalProperties") || (*one)["additionalProperties"] == true) continue;
    const OrderedJson own = one->value("properties", OrderedJson::object());
    const OrderedJson others = other->value("properties", OrderedJson::object());
    std::unordered_set<std::string, SeededHash> names;
    for (const auto& [name, schema] : own.items()) names.insert(name);
    for (const auto& [name, schema] : others.items()) {
      if (!names.contains(name)) fail(pointer, "additionalProperties");
    }
  }
  return out;
}

}  // namespace baton::constrain
