// SPDX-License-Identifier: Apache-2.0
// UTF-8 as every part of the tokeniser and of the chat templates needs it: checking, repairing, walking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::utf8 {

enum class Scan : std::uint8_t { valid, broken, unfinished };

struct CharacterStep {
  Scan kind = Scan::valid;
  std::size_t bytes = 0;  // of the character, or of the ill-formed part that one U+FFFD stands for
};

/// Looks at the bytes from `at` (which must be inside). `unfinished`: a good beginning that the end of the text cuts
/// off.
CharacterStep scan(std::string_view bytes, std::size_t at);

bool is_valid(std::string_view bytes);

/// Each maximal ill-formed part becomes one U+FFFD, as Python's bytes.decode("utf-8", "replace") does.
std::string repaired(std::string_view bytes);

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

/// True for a byte that continues a character, false for one that begins it.
constexpr bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// How many characters there are in valid UTF-8.
std::size_t count(std::string_view text);

/// The character at a boundary of valid UTF-8.
CodePoint at(std::string_view text, std::size_t position);
/// Where the character before `position` (> 0) of valid UTF-8 begins.
std::size_t before(std::string_view text, std::size_t position);
void append(std::string& out, char32_t code_point);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace baton::utf8
