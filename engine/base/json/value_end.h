// SPDX-License-Identifier: Apache-2.0
// The end of JSON that stands in front of other text, as models write it.
#pragma once

#include <cstddef>
#include <string_view>

namespace baton {

/// Returns the length of the object or list that `text` begins with, by its brackets alone; the size of `text` where it
/// has no end.
inline std::size_t value_end(std::string_view text) {
  int open = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (quoted) {
      at += text[at] == '\\' ? 1 : 0;
      quoted = at >= text.size() || text[at] != '"';
    } else if (text[at] == '"') {
      quoted = true;
    } else if (text[at] == '{' || text[at] == '[') {
      ++open;
    } else if ((text[at] == '}' || text[at] == ']') && --open == 0) {
      return at + 1;
    }
  }
  return text.size();
}

}  // namespace baton
