// SPDX-License-Identifier: Apache-2.0
// Parts of texts that may hold JSON: a beginning for messages, and where a value ends. Needs no parser.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The beginning of a text from a file, for messages.

/// The whole text, or whole characters from its first `bytes` bytes with "..." behind them.
inline std::string beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  while (bytes > 0 && continues(text[bytes])) --bytes;
  return std::string(text.substr(0, bytes)) + "...";
}

// The end of a value of JSON that stands in front of other text, as models write it.

/// Returns where the value that begins at `at` ends, by its quotes and brackets alone: it need not be valid. A number
/// or a word ends in front of a blank, a comma or a closing bracket. Nothing: the text ends before the value does.
inline std::optional<std::size_t> value_end(std::string_view text, std::size_t at = 0) {
  int open = 0;
  while (at < text.size()) {
    const char c = text[at++];
    if (c == '"') {
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      if (at >= text.size()) return std::nullopt;
      ++at;
    } else if (c == '{' || c == '[') {
      ++open;
    } else if (c == '}' || c == ']') {
      --open;
    } else if (open == 0) {
      return std::min(text.find_first_of(" \t\r\n,]}", at), text.size());
    }
    if (open <= 0) return at;
  }
  return std::nullopt;
}

}  // namespace baton
