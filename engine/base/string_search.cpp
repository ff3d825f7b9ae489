// SPDX-License-Identifier: Apache-2.0
#include "engine/base/string_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/base/json/json_parts.h"
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

}  // namespace baton
