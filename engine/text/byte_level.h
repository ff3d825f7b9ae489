// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE (GPT-2): each byte is represented by a printable character, so that a vocabulary is
// text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

/// Appends, as UTF-8, the character that represents the byte.
void append_byte_character(std::string& out, unsigned char byte);
/// Returns the byte that a character represents, if any.
std::optional<unsigned char> byte_of_character(char32_t c);
/// Returns the bytes that a token's text represents; a text with a character outside the alphabet represents itself.
std::string byte_level_bytes(std::string_view token);

}  // namespace baton::text
