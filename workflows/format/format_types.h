// SPDX-License-Identifier: Apache-2.0
// The types that the table of the workflow format is written with, and the sections that stand in files of their own.
// For format_table*.cpp only.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workflows/format/format_table.h"

namespace baton::format_types {

using Kind = FormatType::Kind;

inline constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

inline FormatType of_kind(Kind kind) {
  FormatType type;
  type.kind = kind;
  return type;
}
inline FormatType any() { return of_kind(Kind::any); }
inline FormatType string() { return of_kind(Kind::string); }
inline FormatType prompt() { return of_kind(Kind::prompt); }
inline FormatType scalar() { return of_kind(Kind::scalar); }
inline FormatType id() { return of_kind(Kind::id); }
inline FormatType boolean() { return of_kind(Kind::boolean); }
inline FormatType duration() { return of_kind(Kind::duration); }
inline FormatType time_limit() {
  FormatType type = duration();
  type.above_low = true;
  return type;
}
inline FormatType size() { return of_kind(Kind::size); }
inline FormatType integer(double low, double high = kNoLimit) {
  FormatType type = of_kind(Kind::integer);
  type.low = low;
  type.high = high;
  return type;
}
inline FormatType number(double low, double high) {
  FormatType type = integer(low, high);
  type.kind = Kind::number;
  return type;
}
inline FormatType number_above(double low, double high) {
  FormatType type = number(low, high);
  type.above_low = true;
  return type;
}
inline FormatType choice(std::vector<std::string> words) {
  FormatType type = of_kind(Kind::choice);
  type.words = std::move(words);
  return type;
}
inline FormatType object(std::string name) {
  FormatType type = of_kind(Kind::object);
  type.name = std::move(name);
  return type;
}
inline FormatType list(FormatType element) {
  FormatType type = of_kind(Kind::list);
  type.of.push_back(std::move(element));
  return type;
}
inline FormatType map(FormatType element) {
  FormatType type = list(std::move(element));
  type.kind = Kind::map;
  return type;
}
/// A map whose keys are names of something outside, of variables for example.
inline FormatType names_to(FormatType element) {
  FormatType type = map(std::move(element));
  type.free_keys = true;
  return type;
}
inline FormatType either(std::vector<FormatType> alternatives) {
  FormatType type = of_kind(Kind::either);
  type.of = std::move(alternatives);
  return type;
}

/// An object, or a scalar that is short for it with one key.
inline FormatType object_or(FormatType scalar_type, std::string name, std::string key) {
  FormatType type = either({std::move(scalar_type), object(std::move(name))});
  type.short_for = std::move(key);
  return type;
}

FormatType relay_method(bool laboratory);

/// The sections of `relay`.
std::vector<FormatKey> relay_keys(bool laboratory);

}  // namespace baton::format_types
