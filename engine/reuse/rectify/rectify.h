// SPDX-License-Identifier: Apache-2.0
// Method rectify: the choice of tokens, options and schedule, which auto and verified use as well (docs/methods.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/method.h"
#include "engine/reuse/method_state.h"

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

/// Returns flags of options.count tokens, or else of the fraction options.share, those with the largest scores. The
/// head, and then the suffix, count towards them.
std::vector<bool> best_share(const SelectionOptions& options, std::span<const float> scores);

/// Returns flags of the `count` largest scores; among equal scores, later tokens come first.
std::vector<bool> largest(std::span<const double> scores, std::size_t count);

struct RectifyOptions {
  SelectionOptions selection = SelectionOptions::by_change();
  bool correct = true;        // add the learned correction of the text's place, if there is one
  bool paper_layers = false;  // a missing layer range is that of RelayCaching's own profiler
  double reuse = 0.0;  // above 0: the fraction that stays reused, in place of the selection's share or thresholds
};

const Method& rectify_method();

/// Ways to choose tokens other than by their change, with their keys of workflow files: the laboratory's
/// (engine/reuse/lab/scores/).
struct TokenScores {
  PromptSchedule (*schedule)(const RectifyOptions&, const ReuseDecision&, const ScheduleInput&) = nullptr;
  std::vector<MethodKey> (*keys)() = nullptr;  // of all methods that rectify
  MethodKey (*preset_key)() = nullptr;         // of method rectify alone
  void (*read)(GivenKeys&, RectifyOptions&) = nullptr;
};
/// For a program with the laboratory, once at its start (register_lab_methods). `scores` must outlive all use.
void set_token_scores(const TokenScores& scores);

PromptSchedule rectify_schedule(const RectifyOptions& options, const ReuseDecision& decision,
                                const ScheduleInput& input);
bool rectify_reads_attention(const RectifyOptions& options);
double max_rectify_reuse(const RectifyOptions& options, const LayerRange& range, std::int32_t layers);
std::string rectify_problem(const RectifyOptions& options);
/// The keys of all methods that rectify, and how they are read; read_reuse: `reuse`, of those that have that key.
std::vector<MethodKey> rectify_keys();
void read_rectify(GivenKeys& given, RectifyOptions& options);
void read_reuse(GivenKeys& given, RectifyOptions& options);
/// The state of all methods that rectify: learned corrections in backend memory.
std::unique_ptr<MethodState> make_correction_state(Backend& backend, const Model& model, const StateBudget& budget);

}  // namespace baton
