// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/character_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"

namespace baton::constrain {
namespace {

constexpr int kMaxDigits = 6;

}  // namespace

CharacterReader::CharacterReader(std::string_view text, std::string_view what, std::size_t max_bytes)
    : text_(text), what_(what) {
  if (text.size() > max_bytes)
    throw ConstraintError(fmt::format("{} has {} bytes; expected at most {}", what, text.size(), max_bytes));
  if (!utf8::is_valid(text)) throw ConstraintError(fmt::format("{} is not valid UTF-8", what));
}

char32_t CharacterReader::peek() const { return done() ? 0 : utf8::at(text_, at_).value; }

char32_t CharacterReader::take() {
  if (done()) fail("it ends too early");
  const utf8::CodePoint c = utf8::at(text_, at_);
  at_ += c.bytes;
  return c.value;
}

bool CharacterReader::take_if(std::string_view ascii) {
  if (!looking_at(ascii)) return false;
  at_ += ascii.size();
  return true;
}

void CharacterReader::expect(std::string_view ascii) {
  if (!take_if(ascii)) fail(fmt::format("expected '{}'", ascii));
}

std::optional<std::int32_t> CharacterReader::number() {
  std::int32_t value = 0;
  int digits = 0;
  for (; peek() >= U'0' && peek() <= U'9'; ++digits) {
    if (digits == kMaxDigits) fail(fmt::format("the number is too large: expected at most {} digits", kMaxDigits));
    value = value * 10 + static_cast<std::int32_t>(take() - U'0');
  }
  return digits == 0 ? std::nullopt : std::optional(value);
}

char32_t CharacterReader::hexadecimal(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char32_t c = peek();
    const char32_t digit = c >= U'0' && c <= U'9'   ? c - U'0'
                           : c >= U'a' && c <= U'f' ? c - U'a' + 10
                           : c >= U'A' && c <= U'F' ? c - U'A' + 10
                                                    : 16;
    if (digit == 16) fail(fmt::format("expected {} hexadecimal digits", digits));
    value = value * 16 + digit;
    take();
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) fail("this is not a character of Unicode");
  return value;
}

void CharacterReader::fail(const std::string& message) const {
  const std::string_view before = text_.substr(0, at_);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  const std::size_t column = utf8::count(before.substr(begin)) + 1;
  if (text_.find('\n') == text_.npos)
    throw ConstraintError(fmt::format("{} at character {} of {}", message, column, what_));
  throw ConstraintError(fmt::format("{} at line {}, character {} of {}", message, line, column, what_));
}

ExpressionPtr read_repetition(CharacterReader& reader, ExpressionPtr part) {
  if (reader.take_if("*")) return repeat(std::move(part), 0, kUnbounded);
  if (reader.take_if("+")) return repeat(std::move(part), 1, kUnbounded);
  if (reader.take_if("?")) return maybe(std::move(part));
  if (!reader.take_if("{")) return part;
  const std::optional<std::int32_t> low = reader.number();
  if (!low) reader.fail("expected a number of repetitions");
  std::int32_t high = *low;
  if (reader.take_if(",")) high = reader.number().value_or(kUnbounded);
  if (high != kUnbounded && high < *low)
    reader.fail(fmt::format("expected at least {} repetitions as the upper bound, found {}", *low, high));
  reader.expect("}");
  return repeat(std::move(part), *low, high);
}

}  // namespace baton::constrain
