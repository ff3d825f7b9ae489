// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/scores/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace baton {
namespace {

constexpr float kRounding = 1e-6f;  // deviation of equal values with different intermediate rounding

double mean(std::span<const float> values) {
  return values.empty() ? 0.0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Adds the tokens whose value is above threshold * mean.
void add_above(std::vector<bool>& chosen, std::span<const float> values, double threshold, double floor) {
  const double bound = std::max(threshold * mean(values), floor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > bound) chosen[i] = true;
  }
}

/// Adds to each score its value as a multiple of the bound threshold * mean, where that is larger.
void raise_to_multiples(std::vector<float>& scores, std::span<const float> values, double threshold, double floor) {
  const double bound = threshold * mean(values);
  for (std::size_t i = 0; bound > 0.0 && i < values.size(); ++i) {
    if (values[i] > floor) scores[i] = std::max(scores[i], static_cast<float>(values[i] / bound));
  }
}

/// Returns the choice where it is known before the prompt runs; empty: a detection has to choose.
std::vector<bool> choose_known(const SelectionOptions& selection, std::span<const float> entropy,
                               std::span<const float> received) {
  using Score = SelectionOptions::Score;
  if (selection.all || (selection.share <= 0.0 && selection.count < 0)) return {};
  if (selection.score == Score::entropy && !entropy.empty()) return best_share(selection, entropy);
  if (selection.score == Score::author && (!entropy.empty() || !received.empty()))
    return select_by_author(selection, entropy, received);
  return {};
}

/// Returns elements [first, first + n) of a value per token of a segment; empty where not all tokens have the value.
std::span<const float> part_of(std::span<const float> values, std::size_t first, std::size_t n) {
  return first + n <= values.size() ? values.subspan(first, n) : std::span<const float>();
}

PromptSchedule scored_schedule(const RectifyOptions& options, const ReuseDecision& decision,
                               const ScheduleInput& input) {
  const LayerRange range = decision.range;
  ScheduleBuilder builder(input);
  /// The selection for n tokens of which every one runs through `all` layers, and a chosen one through `each` more.
  const auto selection_for = [&](std::size_t n, std::int32_t all, std::int32_t each) {
    SelectionOptions selection = options.selection;
    if (decision.reuse > 0.0)
      selection.count = static_cast<std::int32_t>(tokens_for_reuse(decision.reuse, input.layers, n, all, each));
    return selection;
  };
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

/// Reports the settings of `select` that others leave without an effect.
void check_selection(GivenKeys& given, const std::string& score, const SelectionOptions& selection) {
  if (selection.all) {
    given.refuse({"select.share", "select.deviation", "select.influence"},
                 "with `select.all`, which chooses every token");
  } else if (score != "deviation") {
    given.refuse({"select.deviation", "select.influence"}, fmt::format("with `select.score: {}`", score));
    if (given.has("select.share") && selection.share <= 0.0)
      given.error("select.share",
                  fmt::format("invalid select.share 0 with `select.score: {}`; expected a number above 0", score));
  } else if (selection.share > 0.0) {
    given.refuse({"select.deviation", "select.influence"}, "with `select.share`, which replaces the thresholds");
  }
}

std::vector<MethodKey> score_keys() {
  using Type = MethodKey::Type;
  return {
      {.name = "select.deviation",
       .type = Type::number,
       .high = 1000,
       .standard = "1.5",
       .doc = "Chooses tokens whose values deviate by more than this multiple of the mean; 0: none.",
       .lab = true},
      {.name = "select.influence",
       .type = Type::number,
       .high = 1000,
       .standard = "1.45",
       .doc = "Chooses tokens that received more than this multiple of the mean attention; 0: none.",
       .lab = true},
      {.name = "select.suffix",
       .type = Type::integer,
       .standard = "0; 8 by author, 10 by deviation",
       .doc = "How many tokens at the end of each segment are chosen.",
       .lab = true},
      {.name = "select.head",
       .type = Type::integer,
       .standard = "0; 16 by author and by entropy",
       .doc = "How many tokens at the beginning of each segment are chosen.",
       .lab = true},
      {.name = "select.share",
       .type = Type::number,
       .high = 1,
       .standard = "0.2; 0.32 by author, 0.25 by entropy, 0 by deviation",
       .doc = "Above 0: the fraction that is chosen, best scores first, in place of the thresholds; by change of all "
              "segments of a prompt together, else of each.",
       .lab = true},
      {.name = "select.score",
       .type = Type::choice,
       .words = {"change", "author", "entropy", "deviation"},
       .standard = "change; deviation where a threshold is set",
       .doc = "What the score of a token measures: how far its values move (`change`), how unsure its author was of it "
              "and how much it looked back at it (`author`), only the former (`entropy`), or how much its values turn "
              "(`deviation`, the paper's); see docs/methods.md.",
       .lab = true},
      {.name = "select.all",
       .standard = "false",
       .doc = "Chooses every token; only the layer range limits what is recomputed.",
       .lab = true},
  };
}

MethodKey preset_key() {
  return {.name = "preset",
          .type = MethodKey::Type::choice,
          .words = {"paper"},
          .doc =
              "as RelayCaching published it: its choice of tokens, the layers that its profiler "
              "finds, no learned corrections. Of `select`, `deviation`, `influence` and `suffix` "
              "may be set.",
          .lab = true,
          .only_here = true};
}

void read_scores(GivenKeys& given, RectifyOptions& options) {
  using Score = SelectionOptions::Score;
  SelectionOptions& selection = options.selection;
  const bool paper = given.has("preset");  // `paper` is the only one
  if (paper) {
    selection = SelectionOptions::by_paper();
    options.paper_layers = true;
    options.correct = false;
  }
  if (given.has("select")) {
    const bool thresholds = given.has("select.deviation") || given.has("select.influence");
    const std::string score = given.text("select.score").value_or(thresholds ? "deviation" : "change");
    if (paper) {
      given.refuse({"select.score", "select.share", "select.head", "select.all"}, "with `preset: paper`");
    } else if (score == "deviation") {
      selection = {};
    } else if (score == "entropy") {
      selection = {.suffix = 0, .head = 16, .share = 0.25, .score = Score::entropy};
    } else if (score == "author") {
      selection = SelectionOptions::by_author();
    }
    const auto integer = [&](std::string_view name, std::int32_t value) {
      return static_cast<std::int32_t>(given.integer(name).value_or(value));
    };
    selection.deviation_threshold = given.number("select.deviation").value_or(selection.deviation_threshold);
    selection.influence_threshold = given.number("select.influence").value_or(selection.influence_threshold);
    selection.deviation = selection.deviation_threshold > 0.0f;
    selection.influence = selection.influence_threshold > 0.0f;
    selection.suffix = integer("select.suffix", selection.suffix);
    selection.head = integer("select.head", selection.head);
    selection.share = given.number("select.share").value_or(static_cast<float>(selection.share));
    selection.all = given.boolean("select.all").value_or(false);
    if (!paper) {
      options.correct = selection.score != Score::deviation;
      check_selection(given, score, selection);
    }
  }
}

constexpr TokenScores kScores = {scored_schedule, score_keys, preset_key, read_scores};

}  // namespace

const TokenScores& lab_token_scores() { return kScores; }

std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received) {
  const std::size_t n = deviation.size();
  if (options.all) return std::vector<bool>(n, true);
  if (options.share > 0.0 || options.count >= 0) {
    if (options.score != SelectionOptions::Score::paper) return best_share(options, deviation);
    std::vector<float> scores(n, 0.0f);
    if (options.deviation) raise_to_multiples(scores, deviation, options.deviation_threshold, kRounding);
    if (options.influence && received.size() == n)
      raise_to_multiples(scores, received, options.influence_threshold, 0.0);
    return best_share(options, scores);
  }
  std::vector<bool> chosen(n, false);
  if (options.deviation) add_above(chosen, deviation, options.deviation_threshold, kRounding);
  if (options.influence && received.size() == n) add_above(chosen, received, options.influence_threshold, 0.0);
  std::fill_n(chosen.begin(), std::min(n, static_cast<std::size_t>(std::max(0, options.head))), true);
  std::fill_n(chosen.rbegin(), std::min(n, static_cast<std::size_t>(std::max(0, options.suffix))), true);
  return chosen;
}

std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received) {
  std::vector<float> scores(std::max(entropy.size(), received.size()), 0.0f);
  for (const std::span<const float> values : {entropy, received}) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (std::size_t i = 0; sum > 0.0 && i < values.size(); ++i) scores[i] += static_cast<float>(values[i] / sum);
  }
  return best_share(options, scores);
}

}  // namespace baton
