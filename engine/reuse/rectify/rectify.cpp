// SPDX-License-Identifier: Apache-2.0
// rectify: reused tokens enter at l_s from their stored hidden states and are compared in l_d; the chosen tokens run on
// to l_e (RelayCaching, docs/methods.md). Received attention and the suffix choose tokens without any computation.
// Where the author's entropy or attention alone chooses, the tokens are not compared.
#include "engine/reuse/rectify/rectify.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "engine/reuse/rectify/corrections.h"

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
PromptSchedule by_change(const SelectionOptions& selection, const ReuseDecision& decision, const ScheduleInput& input) {
  const LayerRange range = decision.range;
  ScheduleBuilder builder(input);
  auto heads = std::make_shared<std::vector<bool>>();  // of each compared token: it is one of a segment's first
  auto guard = std::make_shared<Guard>();
  builder.set_guard(guard);
  const auto choose = [heads, guard, share = selection.share, reuse = decision.reuse, range, layers = input.layers](
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

PromptSchedule rectify_schedule(const RectifyOptions& options, const ReuseDecision& decision,
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
  if (options.selection.score == SelectionOptions::Score::change && !options.selection.all)
    return by_change(options.selection, decision, input);
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

bool rectify_reads_attention(const RectifyOptions& options) {
  return options.selection.score != SelectionOptions::Score::change;
}

double max_rectify_reuse(const RectifyOptions& options, const LayerRange& range, std::int32_t layers) {
  using Score = SelectionOptions::Score;
  const Score score = options.selection.score;
  const bool known = score == Score::author || score == Score::entropy;
  return 1.0 - static_cast<double>(known ? 0 : range.detect - range.start) / layers;
}

std::string rectify_problem(const RectifyOptions& options) {
  std::string problem;
  expect_fraction(problem, "reuse", options.reuse);
  expect_fraction(problem, "selection.share", options.selection.share);
  expect_not_negative(problem, "selection.suffix", options.selection.suffix);
  expect_not_negative(problem, "selection.head", options.selection.head);
  expect_not_negative(problem, "selection.deviation_threshold", options.selection.deviation_threshold);
  expect_not_negative(problem, "selection.influence_threshold", options.selection.influence_threshold);
  return problem;
}

namespace {

/// The texts of a prompt some of which have learned corrections.
class CorrectedTexts : public PromptTexts {
 public:
  CorrectedTexts(Corrector& corrector, std::vector<std::shared_ptr<const LinearCorrection>> learned)
      : corrector_(corrector), learned_(std::move(learned)) {}

  bool place(std::size_t part, PlacedSegment&, PartUse& use) override {
    use.corrected = learned_[part] != nullptr;
    return true;
  }
  /// A learned correction needs all layers at once.
  bool by_layer(std::size_t part) const override { return !learned_[part]; }
  bool insert(RopeTable& angles, KvCache& cache, std::size_t part, const PlacedSegment& placed, std::int32_t first,
              LayerSpan) override {
    if (!learned_[part]) return false;
    corrector_.insert(angles, cache, placed.begin, *placed.segment, first, *learned_[part]);
    return true;
  }

 private:
  Corrector& corrector_;
  std::vector<std::shared_ptr<const LinearCorrection>> learned_;  // of each part; null: none
};

class CorrectionState : public MethodState {
 public:
  CorrectionState(Backend& backend, const Model& model) : corrector_(backend, model) {}

  std::unique_ptr<PromptTexts> look(const PromptToPlace& prompt) override {
    corrector_.use(prompt.corrections);
    if (!prompt.corrections || !corrects(prompt.reuse)) return nullptr;
    std::vector<std::shared_ptr<const LinearCorrection>> learned(prompt.segments.size());
    const std::vector<PlaceKey> places = places_of(prompt.parts, {});
    for (std::size_t i = 0; i < learned.size(); ++i) {
      if (prompt.segments[i]) learned[i] = corrector_.find(places[i]);
    }
    return std::make_unique<CorrectedTexts>(corrector_, std::move(learned));
  }

 private:
  /// The options of the methods that share this state.
  static bool corrects(const ReuseOptions& reuse) {
    const auto* options = reuse.method->rectify_options != nullptr ? reuse.method->rectify_options(reuse) : nullptr;
    return options != nullptr && options->correct;
  }

  Corrector corrector_;
};

const RectifyOptions& options_of(const ReuseOptions& reuse) { return own<RectifyOptions>(reuse); }

constexpr Method kRectify = {
    .name = "rectify",
    .summary = "Chosen tokens are recomputed in a range of layers, from their author's hidden states.",
    .traits = {.segments = true, .layers = MethodTraits::Layers::detection, .hidden_states = true},
    .schedule = [](const ReuseOptions& reuse, const ReuseDecision& decision,
                   const ScheduleInput& input) { return rectify_schedule(options_of(reuse), decision, input); },
    .asked_reuse = [](const ReuseOptions& reuse) { return options_of(reuse).reuse; },
    .max_reuse = [](const ReuseOptions& reuse, const LayerRange& range,
                    std::int32_t layers) { return max_rectify_reuse(options_of(reuse), range, layers); },
    .reads_attention = [](const ReuseOptions& reuse) { return rectify_reads_attention(options_of(reuse)); },
    .problem = [](const ReuseOptions& reuse) { return rectify_problem(options_of(reuse)); },
    .wants_paper_range = [](const ReuseOptions& reuse) { return options_of(reuse).paper_layers; },
    .make_state = make_correction_state,
    .recompute = [](ReuseOptions& reuse, double share,
                    std::int32_t) { own<RectifyOptions>(reuse).selection.share = share; },
    .keys =
        [] {
          std::vector<MethodKey> keys = rectify_keys();
          keys.push_back(reuse_key());
          keys.push_back({.name = "preset",
                          .type = MethodKey::Type::choice,
                          .words = {"paper"},
                          .doc = "as RelayCaching published it: its choice of tokens, the layers that its profiler "
                                 "finds, no learned corrections. Of `select`, `deviation`, `influence` and `suffix` "
                                 "may be set.",
                          .lab = true,
                          .only_here = true});
          return keys;
        },
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          read_rectify(given, own<RectifyOptions>(reuse));
          read_reuse(given, own<RectifyOptions>(reuse));
        },
    .rectify_options = [](const ReuseOptions& reuse) { return &options_of(reuse); }};

}  // namespace

std::unique_ptr<MethodState> make_correction_state(Backend& backend, const Model& model, const StateBudget&) {
  return std::make_unique<CorrectionState>(backend, model);
}

const Method& rectify_method() { return kRectify; }

namespace {

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

}  // namespace

std::vector<MethodKey> rectify_keys() {
  using Type = MethodKey::Type;
  return {
      {.name = "correct",
       .standard = "true; false by deviation",
       .doc = "reused KV is corrected by the correction that `baton-lab learn` found for the placeholder, if there is "
              "one; false: not."},
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

void read_rectify(GivenKeys& given, RectifyOptions& options) {
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
  options.correct = given.boolean("correct").value_or(options.correct);
}

void read_reuse(GivenKeys& given, RectifyOptions& options) {
  if (!given.has("reuse")) return;
  options.reuse = given.number("reuse").value_or(0.0f);
  given.refuse({"select.share", "select.all"}, "with `reuse`, which says how much is recomputed");
}

}  // namespace baton
