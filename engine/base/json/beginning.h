// SPDX-License-Identifier: Apache-2.0
// The beginning of a text from a file, for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

/// The whole text, or whole characters from its first `bytes` bytes with "..." behind them.
inline std::string beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  while (bytes > 0 && continues(text[bytes])) --bytes;
  return std::string(text.substr(0, bytes)) + "...";
}

}  // namespace baton
