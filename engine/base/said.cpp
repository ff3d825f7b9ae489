// SPDX-License-Identifier: Apache-2.0
#include "engine/base/said.h"

#include "engine/base/json/beginning.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

/// Line and paragraph separators, and marks that change the direction of what follows.
bool moves(char32_t c) {
  return (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0x200E || c == 0x200F || c == 0x061C;
}

}  // namespace

std::string said(std::string_view text, std::size_t max_bytes) {
  const std::string valid = utf8::repaired(text.substr(0, max_bytes + 4));
  std::string line;
  for (std::size_t at = 0; at < valid.size();) {
    const utf8::CodePoint point = utf8::at(valid, at);
    const bool shown = point.value >= 0x20 && !(point.value >= 0x7F && point.value < 0xA0) && !moves(point.value);
    if (shown)
      line.append(valid, at, point.bytes);
    else
      line += ' ';
    at += point.bytes;
  }
  line.erase(0, line.find_first_not_of(' '));
  line.erase(line.find_last_not_of(' ') + 1);
  return beginning(line, max_bytes);
}

}  // namespace baton
