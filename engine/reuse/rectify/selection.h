// SPDX-License-Identifier: Apache-2.0
// The choice of the tokens of a reused segment that are recomputed after the detection layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// The choice of the tokens of a segment that RelayCaching recomputes after the detection layer.
struct SelectionOptions {
  enum class Score : std::uint8_t { deviation, entropy, author, paper, change };
  bool deviation = true;     // d_i > deviation_threshold * mean(d), eq. 5
  bool influence = true;     // A_j > influence_threshold * mean(A), eq. 7
  std::int32_t suffix = 10;  // the last tokens of the segment, eq. 8
  std::int32_t head = 0;     // the first tokens, which lost most of their context (ours)
  float deviation_threshold = 1.5f;
  float influence_threshold = 1.45f;
  double share = 0.0;       // above 0: exactly this fraction, of all segments (by change) or of each, not by thresholds
  std::int32_t count = -1;  // not negative: exactly this many tokens, in place of `share`
  /// deviation: the paper's score. entropy (ours): the tokens whose author was least certain. The entropy is known
  /// before the prompt runs, so these segments need no detection, and only chosen tokens run, from range.start to
  /// range.end. Texts that were not generated have no entropy; their tokens are chosen by deviation.
  /// author (ours): the sum of entropy and received attention, each as a fraction of its sum over the segment. Tokens
  /// of texts that were not generated are chosen by the attention alone.
  /// paper: RelayCaching's rules. With a share, the larger of a token's deviation and received attention, each as a
  /// multiple of its threshold times the mean: the union of both rules, their thresholds multiplied by one factor.
  /// change (ours, after CacheBlend): the tokens with the largest product of two things in layer l_d, how far their
  /// values move (distance over all heads) and how much attention the text behind the segments gives them, over all
  /// segments of the prompt together.
  Score score = Score::deviation;
  bool all = false;  // every token: the layer range alone

  static SelectionOptions by_paper() { return {.score = Score::paper}; }
  static SelectionOptions by_change() { return {.suffix = 0, .share = 0.2, .score = Score::change}; }
  static SelectionOptions by_author() { return {.suffix = 8, .head = 16, .share = 0.32, .score = Score::author}; }
};

/// Returns one flag per token of a segment at the detection layer, from the tokens' deviations (RelayCaching eq. 1) and
/// received attention (eq. 6; empty: unknown). A deviation below the arithmetic's rounding never chooses a token.
std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received);

/// Chooses before the prompt runs: the fraction `options.share` of the tokens, those with the largest entropy. The
/// head, and then the suffix, count towards the fraction.
std::vector<bool> select_by_entropy(const SelectionOptions& options, std::span<const float> entropy);

/// Chooses by the author's entropy and received attention, each as a fraction of its sum. Either may be empty: unknown.
std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received);

/// Returns flags of the `count` largest scores; among equal scores, later tokens come first.
std::vector<bool> largest(std::span<const double> scores, std::size_t count);

}  // namespace baton
