// SPDX-License-Identifier: Apache-2.0
#include "engine/base/utf8.h"

#include <algorithm>

namespace baton::utf8 {
namespace {

unsigned byte_at(std::string_view bytes, std::size_t i) { return static_cast<unsigned char>(bytes[i]); }

}  // namespace

CharacterStep scan(std::string_view bytes, std::size_t at) {
  const unsigned lead = byte_at(bytes, at);
  if (lead < 0x80) return {Scan::valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Scan::broken, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte has a narrower range after these leads: no overlong forms, surrogates or values above U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= bytes.size()) return {Scan::unfinished, i};
    const unsigned byte = byte_at(bytes, at + i);
    if (byte < (i == 1 ? low : 0x80) || byte > (i == 1 ? high : 0xBF)) return {Scan::broken, i};
  }
  return {Scan::valid, length};
}

bool is_valid(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const CharacterStep step = scan(bytes, i);
    if (step.kind != Scan::valid) return false;
    i += step.bytes;
  }
  return true;
}

std::string repaired(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const CharacterStep step = scan(bytes, i);
    out += step.kind == Scan::valid ? bytes.substr(i, step.bytes) : kReplacement;
    i += step.bytes;
  }
  return out;
}

std::size_t count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

CodePoint at(std::string_view text, std::size_t position) {
  const unsigned lead = byte_at(text, position);
  if (lead < 0x80) return {static_cast<char32_t>(lead), 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (byte_at(text, position + i) & 0x3F);
  return {value, length};
}

std::size_t before(std::string_view text, std::size_t position) {
  do --position;
  while (position > 0 && continues(text[position]));
  return position;
}

void append(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

}  // namespace baton::utf8
