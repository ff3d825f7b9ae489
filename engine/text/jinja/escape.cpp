// SPDX-License-Identifier: Apache-2.0
#include "engine/text/jinja/escape.h"

#include <algorithm>
#include <charconv>

#include "engine/base/utf8.h"

namespace baton::jinja {
namespace {

/// Parses the digits at the start of `text`, from `least` to `most` of them. Returns their number, or 0 when there are
/// too few.
std::size_t digits(std::string_view text, int base, std::size_t least, std::size_t most, unsigned& value) {
  most = std::min(most, text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + most, value, base);
  const auto count = static_cast<std::size_t>(end - text.data());
  return error == std::errc() && count >= least ? count : 0;
}

}  // namespace

std::optional<std::string> unescape(std::string_view literal, std::string& out) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  for (std::size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i++];
      continue;
    }
    const char c = literal[i + 1];
    const std::string_view after = literal.substr(i + 2);
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kValues[known];
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      unsigned value = 0;
      i += 1 + digits(literal.substr(i + 1), 8, 1, 3, value);
      utf8::append(out, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      unsigned value = 0;
      if (digits(after, 16, wanted, wanted, value) == 0) return "a broken escape in a string";
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return "an escape that is no character";
      utf8::append(out, value);
      i += 2 + wanted;
    } else if (c == 'N') {
      return "\\N in a string is not supported";
    } else {
      out += '\\';  // Python keeps unknown escapes
      ++i;
    }
  }
  return std::nullopt;
}

}  // namespace baton::jinja
