// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json_fields.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

namespace baton {

JsonDocument parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  try {
    return read_json(text, limits);
  } catch (const JsonError& error) {
    throw ModelError(fmt::format("{}: {}", origin, error.what()));
  }
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

JsonFields::JsonFields(const Json& object, const std::string& origin, std::string prefix)
    : object_(&object), origin_(&origin), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  const std::string where = prefix_.empty() ? "the whole" : '"' + prefix_.substr(0, prefix_.size() - 1) + '"';
  throw ModelError(fmt::format("{}: {} is {}, expected an object", origin, where, describe(object)));
}

const Json* JsonFields::find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::is_null(const std::string& key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

std::int32_t JsonFields::integer(const std::string& key, std::int32_t low, std::int32_t high) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, fmt::format("expected an integer from {} to {}", low, high));
  return checked_integer(*value, key, low, high);
}

std::int32_t JsonFields::integer_or(const std::string& key, std::int32_t fallback, std::int32_t low,
                                    std::int32_t high) const {
  return find(key) == nullptr ? fallback : integer(key, low, high);
}

double JsonFields::number(const std::string& key, double low, double high) const {
  const Json* value = find(key);
  const double number = value != nullptr && value->is_number() ? value->get<double>() : low - 1.0;
  if (!(number >= low && number <= high)) fail(key, fmt::format("expected a number from {:g} to {:g}", low, high));
  return number;
}

double JsonFields::number_or(const std::string& key, double fallback, double low, double high) const {
  return find(key) == nullptr ? fallback : number(key, low, high);
}

bool JsonFields::flag_or(const std::string& key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, "expected true or false");
  return value->get<bool>();
}

std::string JsonFields::text_or(const std::string& key, const std::string& fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail(key, "expected a text");
  return value->get<std::string>();
}

void JsonFields::expect_schema(std::int32_t known) const {
  if (integer("schema", 1, INT32_MAX) != known) fail("schema", fmt::format("this version reads {}", known));
}

std::string JsonFields::filled_text(const std::string& key) const {
  std::string text = text_or(key, "");
  if (text.empty()) fail(key, "expected a text");
  return text;
}

std::vector<std::int32_t> JsonFields::integers(const std::string& key, std::int32_t low, std::int32_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {checked_integer(*value, key, low, high)};
  std::vector<std::int32_t> list;
  for (const Json& entry : *value) list.push_back(checked_integer(entry, key, low, high));
  return list;
}

std::int32_t JsonFields::checked_integer(const Json& value, const std::string& key, std::int32_t low,
                                         std::int32_t high) const {
  // An unsigned value above INT64_MAX would turn negative in get<int64_t>.
  const bool representable =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  const std::int64_t number = representable ? value.get<std::int64_t>() : INT64_MIN;
  if (number < low || number > high) fail(key, fmt::format("expected an integer from {} to {}", low, high));
  return static_cast<std::int32_t>(number);
}

void JsonFields::fail(const std::string& key, std::string_view expectation) const {
  const auto found = object_->find(key);
  const std::string value = found == object_->end() ? "missing" : describe(*found);
  throw ModelError(fmt::format("{}: \"{}{}\" is {}, {}", *origin_, prefix_, key, value, expectation));
}

}  // namespace baton
