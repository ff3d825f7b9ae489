// SPDX-License-Identifier: Apache-2.0
#include "engine/base/string_search.h"

#include <limits>
#include <stdexcept>

namespace baton {
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
