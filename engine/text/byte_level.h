// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE (GPT-2): each byte is written as a printable character, so that a vocabulary is text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

/// Appends the character that stands for the byte, as UTF-8.
void append_byte_character(std::string& out, unsigned char byte);
/// The byte that a character stands for.
std::optional<unsigned char> byte_of_character(char32_t c);
/// The bytes that a token's text stands for; a text with a character outside the alphabet stands for itself.
std::string byte_level_bytes(std::string_view token);

}  // namespace baton::text
