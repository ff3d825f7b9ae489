// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/difference.h"

#include <algorithm>
#include <cstdint>

namespace baton::cli {
namespace {

constexpr std::size_t kMaxCells = 4'000'000;  // of one table, four bytes each

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80) != 0;
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

bool begins_line(char before, char) { return before == '\n'; }
bool begins_word(char before, char now) {
  return !(in_word(before) && in_word(now)) && !(is_blank(before) && is_blank(now));
}

void add(std::vector<TextPart>& parts, std::string_view text, bool same) {
  if (text.empty()) return;
  if (!parts.empty() && parts.back().same == same) {
    parts.back().text = {parts.back().text.data(),
                         parts.back().text.size() + text.size()};  // it is the next of one text
  } else {
    parts.push_back({text, same});
  }
}

std::string_view joined(const std::vector<std::string_view>& pieces, std::size_t begin, std::size_t end) {
  if (begin == end) return {};
  return {pieces[begin].data(),
          static_cast<std::size_t>(pieces[end - 1].data() + pieces[end - 1].size() - pieces[begin].data())};
}

/// Of two lists: in how many pieces the longest common subsequence of what begins at (i, j) consists.
class CommonLengths {
 public:
  CommonLengths(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b)
      : columns_(b.size() + 1), lengths_((a.size() + 1) * columns_) {
    for (std::size_t i = a.size(); i-- > 0;) {
      for (std::size_t j = b.size(); j-- > 0;) {
        at(i, j) = a[i] == b[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  std::uint32_t& at(std::size_t i, std::size_t j) { return lengths_[i * columns_ + j]; }

 private:
  std::size_t columns_;
  std::vector<std::uint32_t> lengths_;
};

}  // namespace

Differences::Words Differences::split(std::string_view text, Pieces begins) {
  Words pieces;
  std::size_t from = 0;
  for (std::size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && !begins(text[i - 1], text[i])) continue;
    pieces.push_back(text.substr(from, i - from));
    from = i;
  }
  return pieces;
}

void Differences::compare(const Words& first, const Words& second, bool lines, TextDifference& out) {
  const auto left_over = [&](std::string_view a, std::string_view b) {
    if (lines && !a.empty() && !b.empty()) return compare(split(a, begins_word), split(b, begins_word), false, out);
    add(out.first, a, false);
    add(out.second, b, false);
  };
  // What both begin and end with needs no table.
  const std::size_t shorter = std::min(first.size(), second.size());
  std::size_t begin = 0, end = 0;
  while (begin < shorter && first[begin] == second[begin]) ++begin;
  while (end < shorter - begin && first[first.size() - 1 - end] == second[second.size() - 1 - end]) ++end;
  add(out.first, joined(first, 0, begin), true);
  add(out.second, joined(second, 0, begin), true);
  const Words a(first.begin() + static_cast<std::ptrdiff_t>(begin), first.end() - static_cast<std::ptrdiff_t>(end));
  const Words b(second.begin() + static_cast<std::ptrdiff_t>(begin), second.end() - static_cast<std::ptrdiff_t>(end));
  const std::size_t cells = (a.size() + 1) * (b.size() + 1);
  std::size_t i = 0, j = 0;
  if (cells <= std::min(kMaxCells, cells_left_)) {
    cells_left_ -= cells;
    CommonLengths lengths(a, b);
    std::size_t from_a = 0, from_b = 0;
    while (i < a.size() && j < b.size()) {
      if (a[i] == b[j]) {
        left_over(joined(a, from_a, i), joined(b, from_b, j));
        add(out.first, a[i], true);
        add(out.second, b[j], true);
        from_a = ++i;
        from_b = ++j;
      } else if (lengths.at(i + 1, j) >= lengths.at(i, j + 1)) {
        ++i;
      } else {
        ++j;
      }
    }
    i = from_a;
    j = from_b;
  }
  left_over(joined(a, i, a.size()), joined(b, j, b.size()));
  add(out.first, joined(first, first.size() - end, first.size()), true);
  add(out.second, joined(second, second.size() - end, second.size()), true);
}

TextDifference Differences::between(std::string_view first, std::string_view second) {
  TextDifference out;
  compare(split(first, begins_line), split(second, begins_line), true, out);
  return out;
}

}  // namespace baton::cli
