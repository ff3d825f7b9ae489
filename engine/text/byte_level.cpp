// SPDX-License-Identifier: Apache-2.0
#include "engine/text/byte_level.h"

#include <array>

#include "engine/base/utf8.h"

namespace baton::text {
namespace {

constexpr bool prints_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 256 + 68> byte{};  // the 68 bytes that are not printable Latin-1 map to U+0100 and up

  constexpr Alphabet() {
    for (auto& entry : byte) entry = -1;
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = prints_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

void append_byte_character(std::string& out, unsigned char byte) { utf8::append(out, kAlphabet.character[byte]); }

std::optional<unsigned char> byte_of_character(char32_t c) {
  if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.byte[c]);
}

std::string byte_level_bytes(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    const auto [c, bytes] = utf8::at(token, i);
    const auto byte = byte_of_character(c);
    if (!byte) return std::string(token);
    out.push_back(static_cast<char>(*byte));
    i += bytes;
  }
  return out;
}

}  // namespace baton::text
