// SPDX-License-Identifier: Apache-2.0
// The end of a value of JSON that stands in front of other text, as models write it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace baton {

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
