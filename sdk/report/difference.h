// SPDX-License-Identifier: Apache-2.0
// Where two texts differ, word by word.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace baton::cli {

struct TextPart {
  std::string_view text;
  bool same = false;  // it stands in the other text, too
};

struct TextDifference {
  std::vector<TextPart> first, second;  // all of either text, in order
};

/// Compares texts of one page. Longest common subsequences take the product of two lengths; when their sum has reached
/// a limit, what was left to compare counts as different.
class Differences {
 public:
  /// The views are into the texts.
  TextDifference between(std::string_view first, std::string_view second);

 private:
  using Words = std::vector<std::string_view>;
  using Pieces = bool (*)(char before, char now);  // true: a new piece begins at `now`

  static Words split(std::string_view text, Pieces begins);
  /// Marks what is common of the two, piece by piece; where pieces are lines, what is left of them word by word.
  void compare(const Words& first, const Words& second, bool lines, TextDifference& out);

  std::size_t cells_left_ = 200'000'000;
};

}  // namespace baton::cli
