// SPDX-License-Identifier: Apache-2.0
// rectify: reused tokens enter at l_s from their stored hidden states and are compared in l_d; the chosen tokens run on
// to l_e (RelayCaching, docs/methods.md). Received attention and the suffix choose tokens without any computation.
// Where the author's entropy or attention alone chooses, the tokens are not compared.
#include <cmath>
#include <memory>

#include "engine/reuse/rectify/selection.h"
#include "engine/reuse/schedule.h"

namespace baton {
namespace {

/// Returns the choice where it is known before the prompt runs; empty: a detection has to choose.
std::vector<bool> choose_known(const SelectionOptions& selection, std::span<const float> entropy,
                               std::span<const float> received) {
  using Score = SelectionOptions::Score;
  if (selection.all || (selection.share <= 0.0 && selection.count < 0)) return {};
  if (selection.score == Score::entropy && !entropy.empty()) return select_by_entropy(selection, entropy);
  if (selection.score == Score::author && (!entropy.empty() || !received.empty()))
    return select_by_author(selection, entropy, received);
  return {};
}

/// Returns elements [first, first + n) of a value per token of a segment; empty where not all tokens have the value.
std::span<const float> part_of(std::span<const float> values, std::size_t first, std::size_t n) {
  return first + n <= values.size() ? values.subspan(first, n) : std::span<const float>();
}

constexpr std::int32_t kMaxReaders = 64;  // they run in the step of the detection

/// How much the unrepaired change of a token can move what its readers see: the amplitude of its share of an attended
/// value.
double effect_of(float change, float attention) {
  constexpr double kMinAttention = 1e-6;  // tokens without attention are ordered by their change
  return std::sqrt(static_cast<double>(change)) * (static_cast<double>(attention) + kMinAttention);
}

/// One choice over all segments of the prompt.
PromptSchedule by_change(const ReuseOptions& options, const ScheduleInput& input) {
  const LayerRange range = options.range;
  const SelectionOptions& selection = options.selection;
  ScheduleBuilder builder(input);
  auto heads = std::make_shared<std::vector<bool>>();  // of each compared token: it is one of a segment's first
  auto guard = std::make_shared<Guard>();
  builder.set_guard(guard);
  const auto choose = [heads, guard, share = selection.share, reuse = options.reuse, range, layers = input.layers](
                          std::span<const float> change, std::span<const float> attention) {
    std::vector<double> scores(change.begin(), change.end());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (!attention.empty()) scores[i] = effect_of(change[i], attention[i]);
      if ((*heads)[i]) scores[i] = HUGE_VAL;
    }
    const auto count = static_cast<std::size_t>(share * static_cast<double>(scores.size()) + 1e-6);
    std::vector<bool> chosen =
        largest(scores, reuse > 0.0 ? tokens_for_reuse(reuse, layers, scores.size(), range.detect - range.start,
                                                       range.end - range.detect)
                                    : count);
    double left = 0.0;
    for (std::size_t i = 0; i < chosen.size(); ++i) left += chosen[i] ? 0.0 : static_cast<double>(change[i]);
    guard->left = static_cast<float>(left / static_cast<double>(std::max<std::size_t>(1, chosen.size())));
    return chosen;
  };
  const std::int32_t readers = input.segments.empty() ? 0 : std::min(input.segments.back().end(), input.length - 1);
  std::int32_t detection = -1;
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         if (detection < 0)
                           detection =
                               builder.add_detection({range.detect, range.end + 1, choose, ValueMeasure::squared,
                                                      readers, std::min(input.length, readers + kMaxReaders)});
                         for (std::int32_t at = begin; at < end; ++at) {
                           builder.add(at, {range.start, range.detect + 1, detection, true});
                           heads->push_back(at - placed.begin < selection.head);
                         }
                       });
}

}  // namespace

PromptSchedule rectify_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const LayerRange range = options.range;
  ScheduleBuilder builder(input);
  /// The selection for n tokens of which every one runs through `all` layers, and a chosen one through `each` more.
  const auto selection_for = [&](std::size_t n, std::int32_t all, std::int32_t each) {
    SelectionOptions selection = options.selection;
    if (options.reuse > 0.0)
      selection.count = static_cast<std::int32_t>(tokens_for_reuse(options.reuse, input.layers, n, all, each));
    return selection;
  };
  if (options.selection.score == SelectionOptions::Score::change && !options.selection.all)
    return by_change(options, input);
  const auto reused = [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
    const auto first = static_cast<std::size_t>(begin - placed.begin), n = static_cast<std::size_t>(end - begin);
    const std::span<const float> entropy = part_of(placed.segment->entropy, first, n);
    const std::span<const float> received = part_of(placed.segment->received(), first, n);
    if (const std::vector<bool> chosen = choose_known(selection_for(n, 0, range.end - range.start), entropy, received);
        !chosen.empty()) {
      for (std::size_t i = 0; i < n; ++i) {
        if (chosen[i]) builder.add(begin + static_cast<std::int32_t>(i), {range.start, range.end + 1, -1, true});
      }
      return;
    }
    const SelectionOptions selection = selection_for(n, range.detect - range.start, range.end - range.detect);
    std::vector<float> known(received.begin(), received.end());
    const std::int32_t detection = builder.add_detection({range.detect, range.end + 1,
                                                          [selection, known = std::move(known)](auto deviation, auto) {
                                                            return select_tokens(selection, deviation, known);
                                                          },
                                                          ValueMeasure::cosine});
    for (std::int32_t at = begin; at < end; ++at) builder.add(at, {range.start, range.detect + 1, detection, true});
  };
  return builder.build([&](std::int32_t at) { builder.add_full(at); }, reused);
}

}  // namespace baton
