// SPDX-License-Identifier: Apache-2.0
#include "engine/base/utf8.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include <baton/named_texts.h>

#include "engine/base/json/json_parts.h"

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

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

namespace {

constexpr std::size_t kShort = 16;

/// `at(i)`: the characters in the order of the search.
template <typename At>
std::vector<std::uint32_t> borders_of(std::size_t size, const At& at) {
  std::vector<std::uint32_t> borders(size, 0);
  for (std::size_t i = 1; i < size; ++i) {
    std::uint32_t border = borders[i - 1];
    while (border > 0 && at(i) != at(border)) border = borders[border - 1];
    borders[i] = at(i) == at(border) ? border + 1 : 0;
  }
  return borders;
}

/// Returns how many characters of the text end the first match, or 0.
template <typename Wanted, typename Text>
std::size_t end_of_match(const std::vector<std::uint32_t>& borders, const Wanted& wanted, std::size_t size,
                         const Text& text) {
  std::uint32_t matched = 0;
  for (std::size_t i = 0; i < size; ++i) {
    while (matched > 0 && text(i) != wanted(matched)) matched = borders[matched - 1];
    if (text(i) == wanted(matched)) ++matched;
    if (matched == borders.size()) return i + 1;
  }
  return 0;
}

}  // namespace

StringSearch::StringSearch(std::string wanted) : wanted_(std::move(wanted)) {
  if (wanted_.size() <= kShort) return;
  if (wanted_.size() > std::numeric_limits<std::uint32_t>::max())
    throw std::length_error("the text to find is too long");
  const std::size_t last = wanted_.size() - 1;
  borders_ = borders_of(wanted_.size(), [&](std::size_t i) { return wanted_[i]; });
  reverse_borders_ = borders_of(wanted_.size(), [&](std::size_t i) { return wanted_[last - i]; });
}

std::size_t StringSearch::find(std::string_view text, std::size_t from) const {
  if (borders_.empty() || from > text.size()) return text.find(wanted_, from);
  const std::size_t end = end_of_match(
      borders_, [&](std::size_t i) { return wanted_[i]; }, text.size() - from,
      [&](std::size_t i) { return text[from + i]; });
  return end == 0 ? std::string_view::npos : from + end - wanted_.size();
}

std::size_t StringSearch::rfind(std::string_view text) const {
  if (borders_.empty() || text.empty()) return text.rfind(wanted_);
  const std::size_t last = wanted_.size() - 1, last_of_text = text.size() - 1;
  const std::size_t end = end_of_match(
      reverse_borders_, [&](std::size_t i) { return wanted_[last - i]; }, text.size(),
      [&](std::size_t i) { return text[last_of_text - i]; });
  return end == 0 ? std::string_view::npos : text.size() - end;
}

NamedTexts::NamedTexts(std::initializer_list<value_type> texts) {
  for (const value_type& text : texts) (*this)[text.first] = text.second;
}

const std::string& NamedTexts::at(std::string_view name) const {
  if (const const_iterator found = find(name); found != end()) return found->second;
  std::string message = "there is no '" + std::string(name) + "'; there are:";
  for (const value_type& text : texts_) message += (&text == &texts_.front() ? " " : ", ") + text.first;
  throw std::out_of_range(texts_.empty() ? "there is no '" + std::string(name) + "', and nothing else" : message);
}

std::string& NamedTexts::operator[](std::string_view name) {
  const auto found =
      std::find_if(texts_.begin(), texts_.end(), [&](const value_type& text) { return text.first == name; });
  if (found != texts_.end()) return found->second;
  return texts_.emplace_back(std::string(name), std::string()).second;
}

NamedTexts::const_iterator NamedTexts::find(std::string_view name) const {
  return std::find_if(begin(), end(), [&](const value_type& text) { return text.first == name; });
}

}  // namespace baton
