// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <baton/errors.h>

namespace baton::serve {
namespace {

constexpr std::size_t kMinLength = 8;

/// What stands behind the scheme, whose case does not matter; empty: it is another scheme.
std::string_view behind(std::string_view text, std::string_view scheme) {
  if (text.size() <= scheme.size() || text[scheme.size()] != ' ') return {};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if (lower(text[i]) != scheme[i]) return {};
  }
  text.remove_prefix(scheme.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    held = (held << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits & 0xFF));
  }
  return bytes;
}

}  // namespace

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  volatile unsigned char different = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    different = static_cast<unsigned char>(different | (left[i] ^ right[i]));
  return different == 0;
}

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::string& key = keys_[i];
    if (key.size() < kMinLength)
      throw InputError(fmt::format("key {}: expected at least {} characters, found {}", i + 1, kMinLength, key.size()));
    if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; }))
      throw InputError(fmt::format("key {}: expected printable ASCII characters without blanks", i + 1));
  }
}

std::optional<std::size_t> ApiKeys::find(std::string_view authorization) const {
  std::string given(behind(authorization, "bearer"));
  if (const std::string_view basic = behind(authorization, "basic"); !basic.empty()) {
    const std::string pair = from_base64(basic).value_or("");
    given = pair.substr(std::min(pair.find(':'), pair.size() - 1) + 1);
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(keys_[i], given)) found = i;
  }
  return found;
}

std::vector<std::string> keys_of_text(std::string_view text) {
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    keys.emplace_back(line);
  }
  return keys;
}

}  // namespace baton::serve
