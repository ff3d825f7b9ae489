// SPDX-License-Identifier: Apache-2.0
// Drafts: tokens that probably come next run in the step of the token before them, and those that the sequence then
// chooses itself stay. The answer is the same, token for token, since a row's result does not depend on the rows of its
// step. A draft is what followed the last tokens where they occurred before: agents repeat one another.
// docs/methods.md, "Drafts"; the idea is prompt lookup decoding, a speculative decoding without a second model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/text/tokenizer.h"

namespace baton {

struct Draft {
  std::span<const TokenId> tokens;  // what may come next; empty: the last tokens are new
  std::int32_t match = 0;           // number of last tokens that occurred before; the longest such match is taken
};

/// Maximum decode rows of a step with drafts, other than those of forced answers.
constexpr std::int32_t kMaxDraftRows = 36;

/// Maximum tokens that run in one step of a draft that runs whole: of a forced answer, or of a tentative one.
constexpr std::int32_t kMaxWholeDraft = 32;

/// Shortest match that makes a draft.
constexpr std::int32_t kMinDraftMatch = 2;

/// Returns up to `max_tokens` tokens that followed the longest earlier occurrence of the last of `tokens`, the latest
/// of equally long ones. The result is a part of `tokens`.
Draft find_draft(std::span<const TokenId> tokens, std::int32_t max_tokens);

/// How many tokens of a draft are worth running, by what has been measured: how often drafts were right after matches
/// of that length, and how long steps of that many rows take. Used by the engine's thread only.
class DraftLength {
 public:
  /// `max_rows`: maximum decode rows of a step with drafts.
  explicit DraftLength(std::int32_t max_rows);

  /// The steps that drafts lengthen: `rows` decode rows give `tokens` tokens on average.
  struct Step {
    std::int32_t rows = 0;
    double tokens = 0;
  };

  /// Returns the number of first tokens of the draft that maximises tokens per second, and adds them to `step`.
  /// `row_ms`: time of a row in a step of many rows; 0: not measured. Returns 0 until some steps have been measured.
  std::int32_t choose(const Draft& draft, double row_ms, Step& step) const;

  /// Reports whether the first token after a match of this length was as drafted, whether or not the draft ran.
  void on_choice(std::int32_t match, bool right);
  /// Reports the duration of a step with these decode rows and no others.
  void on_step(std::int32_t rows, double milliseconds);

 private:
  static constexpr std::size_t kClasses = 5;  // of matches: 2, 3 to 4, 5 to 8, 9 to 16 and longer
  static std::size_t class_of(std::int32_t match);
  double milliseconds(std::int32_t rows, double row_ms) const;  // 0: not measured

  std::array<double, kClasses> right_;  // fraction of drafted tokens that were chosen
  std::vector<double> step_ms_;         // [rows]; 0: not measured
};

}  // namespace baton
