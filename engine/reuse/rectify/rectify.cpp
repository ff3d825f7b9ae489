// SPDX-License-Identifier: Apache-2.0
// rectify: reused tokens enter at l_s from their stored hidden states and are compared in l_d; the chosen tokens run on
// to l_e (RelayCaching, docs/methods.md).
#include "engine/reuse/rectify/rectify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "engine/reuse/rectify/corrections.h"

namespace baton {

std::vector<bool> largest(std::span<const double> scores, std::size_t count) {
  using Scored = std::pair<double, std::size_t>;
  std::vector<Scored> order;
  order.reserve(scores.size());
  for (std::size_t i = scores.size(); i-- > 0;) order.emplace_back(scores[i], i);
  count = std::min(count, order.size());
  const auto above = [](const Scored& a, const Scored& b) {
    return a.first > b.first || (a.first == b.first && a.second > b.second);
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), above);
  std::vector<bool> chosen(scores.size(), false);
  for (std::size_t i = 0; i < count; ++i) chosen[order[i].second] = true;
  return chosen;
}

std::vector<bool> best_share(const SelectionOptions& options, std::span<const float> values) {
  const std::size_t n = values.size();
  std::vector<double> scores(values.begin(), values.end());
  const auto count = options.count >= 0 ? static_cast<std::size_t>(options.count)
                                        : static_cast<std::size_t>(std::ceil(options.share * static_cast<double>(n)));
  const auto part = [&](std::int32_t tokens) {
    return std::min({n, count, static_cast<std::size_t>(std::max(0, tokens))});
  };
  for (std::size_t i = n - part(options.suffix); i < n; ++i) scores[i] = 1e30;
  for (std::size_t i = 0; i < part(options.head); ++i) scores[i] = HUGE_VAL;
  return largest(scores, count);
}

namespace {

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

/// Set once, at the start of a program.
const TokenScores*& token_scores() {
  static const TokenScores* the_scores = nullptr;
  return the_scores;
}

}  // namespace

void set_token_scores(const TokenScores& scores) { token_scores() = &scores; }

PromptSchedule rectify_schedule(const RectifyOptions& options, const ReuseDecision& decision,
                                const ScheduleInput& input) {
  if (options.selection.score == SelectionOptions::Score::change && !options.selection.all)
    return by_change(options.selection, decision, input);
  if (token_scores() == nullptr)
    throw std::invalid_argument("rectify: this program chooses tokens by their change alone");
  return token_scores()->schedule(options, decision, input);
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
          if (token_scores() != nullptr) keys.push_back(token_scores()->preset_key());
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

std::vector<MethodKey> rectify_keys() {
  std::vector<MethodKey> keys = {
      {.name = "correct",
       .standard = "true; false by deviation",
       .doc = "reused KV is corrected by the correction that `baton-lab learn` found for the placeholder, if there is "
              "one; false: not."}};
  if (token_scores() == nullptr) return keys;
  for (MethodKey& key : token_scores()->keys()) keys.push_back(std::move(key));
  return keys;
}

void read_rectify(GivenKeys& given, RectifyOptions& options) {
  if (token_scores() != nullptr) token_scores()->read(given, options);
  options.correct = given.boolean("correct").value_or(options.correct);
}

void read_reuse(GivenKeys& given, RectifyOptions& options) {
  if (!given.has("reuse")) return;
  options.reuse = given.number("reuse").value_or(0.0f);
  given.refuse({"select.share", "select.all"}, "with `reuse`, which says how much is recomputed");
}

}  // namespace baton
