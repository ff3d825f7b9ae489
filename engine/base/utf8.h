// SPDX-License-Identifier: Apache-2.0
// UTF-8 for the tokeniser and the chat templates: validation, repair and iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::utf8 {

enum class Scan : std::uint8_t { valid, broken, unfinished };

struct CharacterStep {
  Scan kind = Scan::valid;
  std::size_t bytes = 0;  // bytes of the character, or of the ill-formed part that becomes one U+FFFD
};

/// Decodes the character at byte `at`, which must be inside the text. `unfinished`: the text ends within a well-formed
/// character.
CharacterStep scan(std::string_view bytes, std::size_t at);

bool is_valid(std::string_view bytes);

/// Replaces each maximal ill-formed part by one U+FFFD, like Python's bytes.decode("utf-8", "replace").
std::string repaired(std::string_view bytes);

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

/// True for a byte that continues a character, false for a byte that begins one.
constexpr bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns the number of characters in valid UTF-8.
std::size_t count(std::string_view text);

/// Returns the character that begins at a boundary of valid UTF-8.
CodePoint at(std::string_view text, std::size_t position);
/// Returns where the character before `position` (> 0) of valid UTF-8 begins.
std::size_t before(std::string_view text, std::size_t position);
void append(std::string& out, char32_t code_point);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace baton::utf8
