// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_steps.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"

namespace baton::text {

Where Where::in(std::string_view key) const {
  return {origin, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key)};
}

Where Where::in(std::size_t index) const { return {origin, fmt::format("{}[{}]", path, index)}; }

void Where::fail(std::string_view what) const {
  throw ModelError(path.empty() ? fmt::format("{}: {}", origin, what) : fmt::format("{}: {}: {}", origin, path, what));
}

const Json* find(const Json& object, const char* key, const Where& where) {
  if (!object.is_object()) where.fail("expected an object");
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const Json& member(const Json& object, const char* key, const Where& where) {
  const Json* value = find(object, key, where);
  if (value == nullptr) where.fail(fmt::format("'{}' is missing", key));
  return *value;
}

std::optional<std::string> optional_string(const Json& object, const char* key, const Where& where) {
  const Json* value = find(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) where.fail(fmt::format("'{}' must be a string", key));
  return value->get<std::string>();
}

std::string string_member(const Json& object, const char* key, const Where& where) {
  member(object, key, where);
  return *optional_string(object, key, where);
}

bool bool_member(const Json& object, const char* key, bool otherwise, const Where& where) {
  const Json* value = find(object, key, where);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) where.fail(fmt::format("'{}' must be true or false", key));
  return value->get<bool>();
}

std::int32_t index_of(const Json& value, std::int32_t limit, const Where& where) {
  if (!value.is_number_unsigned()) where.fail("expected a whole number that is not negative");
  const auto number = value.get<std::uint64_t>();
  if (number >= static_cast<std::uint64_t>(limit)) where.fail(fmt::format("{} is not below {}", number, limit));
  return static_cast<std::int32_t>(number);
}

const Json& array_member(const Json& object, const char* key, const Where& where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) where.fail(fmt::format("'{}' must be a list", key));
  return value;
}

void check_step_count(std::size_t steps, const Where& where) {
  constexpr std::size_t kMaxSteps = 64;  // published tokenizers have up to 10
  if (steps > kMaxSteps) where.fail(fmt::format("more than {} steps", kMaxSteps));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShownBytes = 60;
  return fmt::format("'{}'", beginning(text, kMaxShownBytes));
}

namespace {

// A text may become 16 times as long: NFKC makes 33 bytes of the 3 of U+FDFA, and marks for blanks add to that.
constexpr std::size_t kGrowth = 16;
constexpr std::size_t kFreeBytes = 1u << 20;
// Words and what is between them: published tokenizers make up to 7 of the 3 bytes of U+FDFA.
constexpr std::size_t kPiecesPerByte = 3;
constexpr std::size_t kFreePieces = 1u << 16;
constexpr std::size_t kSymbolsPerByte = 12;  // 33 equal groups of 3 bytes, if nothing splits the text
constexpr std::size_t kUnitsPerByte = 256;
constexpr std::size_t kFreeUnits = 16'000'000;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kTokenUnits = 1'000'000;

}  // namespace

TextWork::TextWork(std::string_view origin, std::size_t bytes, std::stop_token stop)
    : TextWork(origin, "text", bytes,
               {kGrowth * bytes + kFreeBytes, kPiecesPerByte * bytes + kFreePieces,
                kSymbolsPerByte * bytes + kFreeBytes, kUnitsPerByte * bytes + kFreeUnits},
               std::move(stop)) {}

TextWork TextWork::of_token(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  const std::size_t most = std::max(bytes, kMaxTokenBytes);
  return {origin, "token", bytes, {most, most, most, kUnitsPerByte * bytes + kTokenUnits}, std::move(stop)};
}

TextWork TextWork::of_vocabulary(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  const std::size_t most = 2 * bytes + kFreeBytes;
  return {origin, "vocabulary", bytes, {most, most, most, kUnitsPerByte * bytes + kFreeUnits}, std::move(stop)};
}

void TextWork::allow(std::size_t bytes) {
  effort_.allow(kUnitsPerByte * bytes);
  for (std::size_t* limit : {&limits_.bytes, &limits_.pieces, &limits_.symbols}) *limit = std::max(*limit, bytes);
}

void TextWork::fail() const {
  if (effort_.stop_requested()) throw Interrupted();
  throw ModelError(
      fmt::format("{}: a {} of {} bytes needs more than the tokenizer's limit of steps", origin_, what_, bytes_));
}

void TextWork::fail_size(std::size_t limit, std::string_view unit) const {
  throw ModelError(
      fmt::format("{}: the tokenizer makes more than {} {} of a {} of {} bytes", origin_, limit, unit, what_, bytes_));
}

}  // namespace baton::text
