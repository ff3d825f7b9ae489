// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/html.h"

namespace baton::cli {

Markup escaped(std::string_view text, Lines lines) {
  std::string out;
  for (const char c : printable(text, lines)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return Markup::trusted(std::move(out));
}

std::string_view cut(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && bytes - end < 3 && continues_character(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace baton::cli
