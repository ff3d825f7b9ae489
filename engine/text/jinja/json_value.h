// SPDX-License-Identifier: Apache-2.0
// JSON as a value of templates and expressions. For .cpp files only.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/text/jinja/value.h"

namespace baton::jinja {

/// `Json`: nlohmann::json, or nlohmann::ordered_json, whose objects keep the order of their members. Spends what it
/// copies; throws Fault beyond the budget, and where lists or objects lie too deep in each other.
template <class Json>
Value value_of_json(const Json& json, Budget& budget) {
  budget.spend(1);
  switch (json.type()) {
    case Json::value_t::string:
      budget.spend_bytes(json.template get_ref<const std::string&>().size());
      return Value(json.template get_ref<const std::string&>());
    case Json::value_t::boolean:
      return Value(json.template get<bool>());
    case Json::value_t::number_unsigned:
      if (json.template get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Value(json.template get<double>());
      [[fallthrough]];
    case Json::value_t::number_integer:
      return Value(json.template get<std::int64_t>());
    case Json::value_t::number_float:
      return Value(json.template get<double>());
    case Json::value_t::array: {
      Values items;
      for (const Json& item : json) items.push_back(value_of_json(item, budget));
      return Value::sequence(SequenceKind::list, std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [name, member] : json.items()) dict.set(name, value_of_json(member, budget), budget);
      return Value::dict(std::move(dict));
    }
    default:
      return Value();
  }
}

}  // namespace baton::jinja
