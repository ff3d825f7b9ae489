// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "engine/base/errors.h"
#include "engine/base/json_fields.h"
#include "engine/model/gguf.h"

namespace baton {
namespace {

template <class Value>
Value read(const std::byte* data) {
  Value value;
  std::memcpy(&value, data, sizeof(Value));
  return value;
}

bool is_integer(GgufType type) {
  return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::boolean && type != GgufType::text &&
         type != GgufType::array;
}

bool is_float(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

/// Of an integer type. What is above 2^63 - 1 becomes that: no limit in use is as high.
std::int64_t integer_at(const std::byte* data, GgufType type) {
  switch (type) {
    case GgufType::u8:
      return read<std::uint8_t>(data);
    case GgufType::i8:
      return read<std::int8_t>(data);
    case GgufType::u16:
      return read<std::uint16_t>(data);
    case GgufType::i16:
      return read<std::int16_t>(data);
    case GgufType::u32:
      return read<std::uint32_t>(data);
    case GgufType::i32:
      return read<std::int32_t>(data);
    case GgufType::u64:
      return static_cast<std::int64_t>(std::min<std::uint64_t>(read<std::uint64_t>(data), INT64_MAX));
    default:
      return read<std::int64_t>(data);
  }
}

double number_at(const std::byte* data, GgufType type) {
  if (type == GgufType::f32) return static_cast<double>(read<float>(data));
  if (type == GgufType::f64) return read<double>(data);
  return static_cast<double>(integer_at(data, type));
}

std::string_view view_of_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string shown(const GgufValue& value) {
  if (value.type == GgufType::array) return fmt::format("an array of {}", value.count);
  if (value.type == GgufType::text) {
    constexpr std::size_t kShown = 60;
    const std::string_view text = view_of_text(value.bytes);
    return baton::quoted(std::string(text.substr(0, kShown))) + (text.size() > kShown ? "..." : "");
  }
  if (value.type == GgufType::boolean) return value.bytes[0] == std::byte{0} ? "false" : "true";
  if (is_float(value.type)) return fmt::format("{}", number_at(value.bytes.data(), value.type));
  return fmt::format("{}", integer_at(value.bytes.data(), value.type));
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufMetadata::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void GgufMetadata::fail(std::string_view key, std::string_view expectation) const {
  const GgufValue* value = find(key);
  if (value == nullptr) throw ModelError(fmt::format("{}: key \"{}\" is missing, {}", origin_, key, expectation));
  throw ModelError(
      fmt::format("{}: byte {}: key \"{}\" is {}, {}", origin_, value->place, key, shown(*value), expectation));
}

const GgufValue& GgufMetadata::required(std::string_view key, std::string_view what) const {
  const GgufValue* value = find(key);
  if (value == nullptr) fail(key, fmt::format("expected {}", what));
  return *value;
}

const GgufValue& GgufMetadata::array(std::string_view key, std::string_view what) const {
  const GgufValue& value = required(key, what);
  if (value.type != GgufType::array) fail(key, fmt::format("expected {}", what));
  return value;
}

std::int64_t GgufMetadata::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::string what = fmt::format("an integer from {} to {}", low, high);
  const GgufValue& value = required(key, what);
  if (!is_integer(value.type)) fail(key, "expected " + what);
  const std::int64_t number = integer_at(value.bytes.data(), value.type);
  if (number < low || number > high) fail(key, "expected " + what);
  return number;
}

std::int64_t GgufMetadata::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return contains(key) ? integer(key, low, high) : fallback;
}

double GgufMetadata::number(std::string_view key, double low, double high) const {
  const std::string what = fmt::format("a number from {} to {}", low, high);
  const GgufValue& value = required(key, what);
  if (!is_integer(value.type) && !is_float(value.type)) fail(key, "expected " + what);
  const double number = number_at(value.bytes.data(), value.type);
  if (!(number >= low && number <= high)) fail(key, "expected " + what);  // NaN is in no range
  return number;
}

double GgufMetadata::number_or(std::string_view key, double fallback, double low, double high) const {
  return contains(key) ? number(key, low, high) : fallback;
}

bool GgufMetadata::flag_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (value->type != GgufType::boolean) fail(key, "expected a truth value");
  return value->bytes[0] != std::byte{0};
}

std::string GgufMetadata::text(std::string_view key) const {
  const GgufValue& value = required(key, "a text");
  if (value.type != GgufType::text) fail(key, "expected a text");
  return std::string(view_of_text(value.bytes));
}

std::string GgufMetadata::text_or(std::string_view key, std::string_view fallback) const {
  return contains(key) ? text(key) : std::string(fallback);
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const GgufValue& value = array(key, "an array of texts");
  if (value.element != GgufType::text) fail(key, "expected an array of texts");
  std::vector<std::string_view> texts;
  texts.reserve(value.count);
  for (std::size_t at = 0; texts.size() < value.count;) {  // lengths were checked when the file was parsed
    const auto length = static_cast<std::size_t>(read<std::uint64_t>(value.bytes.data() + at));
    texts.push_back(view_of_text(value.bytes.subspan(at + 8, length)));
    at += 8 + length;
  }
  return texts;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufValue& value = array(key, "an array of integers");
  if (!is_integer(value.element)) fail(key, "expected an array of integers");
  std::vector<std::int64_t> integers;
  integers.reserve(value.count);
  const std::size_t width = size_of(value.element);
  for (std::size_t i = 0; i < value.count; ++i)
    integers.push_back(integer_at(value.bytes.data() + i * width, value.element));
  return integers;
}

std::vector<float> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue& value = array(key, "an array of numbers");
  if (!is_integer(value.element) && !is_float(value.element)) fail(key, "expected an array of numbers");
  std::vector<float> numbers;
  numbers.reserve(value.count);
  const std::size_t width = size_of(value.element);
  for (std::size_t i = 0; i < value.count; ++i) {
    numbers.push_back(static_cast<float>(number_at(value.bytes.data() + i * width, value.element)));
    if (!std::isfinite(numbers.back()))
      fail(key, fmt::format("with {} at {}, expected finite numbers", numbers.back(), i));
  }
  return numbers;
}

}  // namespace baton
