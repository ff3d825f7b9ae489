// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/effect_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/registry.h"
#include "engine/reuse/between_models.h"
#include "engine/reuse/lab/lab_methods.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton::inline v1::lab {

namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr double kNothing = 1e-9;   // nats; smaller divergences are rounding
constexpr double kMinShare = 0.01;  // minimum fraction of tokens that makes a choice meaningful

std::size_t index_of(std::int32_t layer) { return static_cast<std::size_t>(layer); }

}  // namespace

std::optional<LayerEffect> search_range(std::int32_t layers, const MeasureCandidates& measure,
                                        const RangeSearchSettings& settings) {
  if (layers < kMinRangeLayers) {
    throw std::invalid_argument(
        fmt::format("a model of {} layers has no layer range; at least {} are needed", layers, kMinRangeLayers));
  }
  LayerEffect effect;
  for (auto* curve : {&effect.start, &effect.end, &effect.detect}) curve->assign(index_of(layers), kNotMeasured);
  if (settings.own_kv < 2) {
    effect.problem = "fewer than two layers have keys and values of their own";
    return effect;
  }
  const std::int32_t last = layers - 1;
  const RangeCandidate none{{0, 1, last}, 0.0};
  const auto direct = measure({&none, 1});
  if (!direct) return std::nullopt;
  effect.direct = direct->front();
  if (!(effect.direct > kNothing)) {
    effect.problem = "direct reuse does not differ from full prefill on these hand-overs";
    return effect;
  }
  const auto left = [&](double divergence) { return divergence / effect.direct; };

  effect.start[0] = 0.0;  // recomputing from the embeddings through all layers is full prefill
  LayerRange& range = effect.range;
  for (std::int32_t l = 1; l <= std::min(last - 2, settings.own_kv - 2); ++l) {
    const RangeCandidate from{{l, l + 1, last}};
    const auto measured = measure({&from, 1});
    if (!measured) return std::nullopt;
    effect.start[index_of(l)] = left(measured->front());
    if (!(effect.start[index_of(l)] <= settings.left)) break;
    range.start = l;
  }

  std::vector<RangeCandidate> candidates;
  for (std::int32_t l = range.start + 2; l <= last; ++l) candidates.push_back({{range.start, range.start + 1, l}});
  const auto ends = measure(candidates);
  if (!ends) return std::nullopt;
  range.end = last;
  for (std::size_t i = ends->size(); i-- > 0;) {
    const std::int32_t l = candidates[i].range.end;
    effect.end[index_of(l)] = left((*ends)[i]);
    if (range.end == l + 1 && effect.end[index_of(l)] <= left(ends->back()) + settings.left) range.end = l;
  }

  candidates.clear();
  const double cost = 1 + (range.end - range.start - 1) * settings.share;  // layers times fractions of tokens
  for (std::int32_t l = range.start + 1; l < std::min(range.end, settings.own_kv); ++l) {
    const double share = (cost - (l - range.start)) / (range.end - l);
    if (share > kMinShare) candidates.push_back({{range.start, l, range.end}, share});
  }
  const auto choices = measure(candidates);
  if (!choices) return std::nullopt;
  const auto best = std::min_element(choices->begin(), choices->end()) - choices->begin();
  range.detect = candidates[static_cast<std::size_t>(best)].range.detect;
  for (std::size_t i = 0; i < choices->size(); ++i)
    effect.detect[index_of(candidates[i].range.detect)] = left((*choices)[i]);
  return effect;
}

namespace {

constexpr const char* kNoHandOver = "no hand-over both fits the context and is long enough to measure";

/// Returns the effective number of values: (sum x)^2 / sum x^2.
double effective_size(std::span<const double> values) {
  double sum = 0.0, squares = 0.0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0.0 ? sum * sum / squares : 0.0;
}

/// The method that recomputes a group of layers, or null.
const Method* group_method() {
  const auto found =
      std::find_if(methods().begin(), methods().end(), [](const Method* one) { return needs_group(*one); });
  return found == methods().end() ? nullptr : *found;
}

/// The options with which a candidate is measured.
ReuseOptions options_of(const RangeCandidate& candidate, std::int32_t layers) {
  ReuseOptions reuse;
  const bool group = candidate.range.is_group(layers);
  reuse.method = candidate.share <= 0 ? &direct_method() : group ? group_method() : &rectify_method();
  if (reuse.method == nullptr) throw std::invalid_argument("this program lacks a method that is measured");
  reuse.range = candidate.range;
  SelectionOptions& selection = own<RectifyOptions>(reuse).selection;
  selection = SelectionOptions::by_change();  // as runs choose
  selection.share = candidate.share;
  selection.all = candidate.share >= 1;
  return reuse;
}

/// Measures candidates, and keeps the effective number of hand-overs of the first.
class EffectMeasurement : public HandOverMeasurement {
 public:
  EffectMeasurement(LocalEngine& author, LocalEngine& reader, std::span<const CalibrationHandOver> hand_overs,
                    const ProfilerOptions& options, std::int32_t reply_tokens)
      : HandOverMeasurement(author, reader, hand_overs, options, reply_tokens), layers_(reader.model().config.layers) {}

  std::optional<std::vector<double>> measure(std::span<const RangeCandidate> candidates) {
    std::vector<ReuseOptions> options;
    for (const RangeCandidate& one : candidates) options.push_back(options_of(one, layers_));
    const auto each = HandOverMeasurement::measure(options);
    if (!each) return std::nullopt;
    if (weighty_ == 0.0) weighty_ = effective_size(each->front());
    std::vector<double> means;
    for (const std::vector<double>& of : *each) means.push_back(mean_of(of));
    return means;
  }

  /// The effective number of hand-overs of the first measured candidate.
  double weighty() const { return weighty_; }

 private:
  const std::int32_t layers_;
  double weighty_ = 0.0;
};

/// Returns the fraction of all groups that begin before `start`.
double done_of(std::int32_t start, std::int32_t layers) {
  const double rest = 1.0 - static_cast<double>(start) / layers;
  return 1.0 - rest * rest;
}

}  // namespace

std::optional<LayerEffect> measure_effect(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect) {
  EffectMeasurement measurement(engine, engine, hand_overs, options, effect.reply_tokens);
  const std::int32_t layers = engine.model().config.layers;
  std::int32_t measured = 0;
  const auto progress = [&] {
    // About L candidates for the end, L for the detection layer, and one or two for the first layer.
    if (options.on_progress) options.on_progress(std::min(1.0, measured / (2.0 * layers)));
  };
  if (!measurement.prepare()) return std::nullopt;
  if (measurement.empty()) {
    LayerEffect nothing;
    nothing.problem = kNoHandOver;
    return nothing;
  }
  RangeSearchSettings settings = effect.search;
  settings.own_kv = engine.model().config.first_kv_reader();
  auto found = search_range(
      layers,
      [&](std::span<const RangeCandidate> candidates) {
        auto divergences = measurement.measure(candidates);
        measured += static_cast<std::int32_t>(candidates.size());
        progress();
        return divergences;
      },
      settings);
  if (found) found->weighty = measurement.weighty();
  return found;
}

std::optional<GroupEffect> measure_groups(LocalEngine& author, LocalEngine& reader,
                                          std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const GroupOptions& groups) {
  const std::int32_t layers = reader.model().config.layers, step = std::max(groups.step, 1);
  if (const std::string difference = kv_difference(author.model(), reader.model()); !difference.empty())
    throw ModelError(fmt::format("{} and {} cannot hand KV over: {}", author.model().path.string(),
                                 reader.model().path.string(), difference));
  if (layers < 2)
    throw ModelError(fmt::format("{}: a model of one layer has no group of layers; expected at least 2 layers",
                                 reader.model().path.string()));
  EffectMeasurement measurement(author, reader, hand_overs, options, groups.reply_tokens);
  if (!measurement.prepare()) return std::nullopt;
  GroupEffect effect;
  effect.hand_overs = measurement.size();
  effect.tokens = measurement.tokens();
  if (measurement.empty()) {
    effect.problem = kNoHandOver;
    return effect;
  }
  const RangeCandidate none{LayerRange::group(0, layers - 1), 0.0};
  const auto direct = measurement.measure({&none, 1});
  if (!direct) return std::nullopt;
  effect.direct = direct->front();
  effect.weighty = measurement.weighty();
  for (std::int32_t start = 0; start < layers - 1; start += step) {
    if (options.on_progress) options.on_progress(done_of(start, layers));
    std::vector<RangeCandidate> candidates;
    for (std::int32_t end = start + step - 1; end < layers - 1 + step; end += step) {
      const LayerRange range = LayerRange::group(start, std::min(end, layers - 1));
      if (range.is_group(layers)) candidates.push_back({range});
    }
    const auto divergences = measurement.measure(candidates);
    if (!divergences) return std::nullopt;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double left = effect.direct > 0 ? (*divergences)[i] / effect.direct : 0.0;
      effect.points.push_back({candidates[i].range.start, candidates[i].range.end, left});
    }
  }
  if (options.on_progress) options.on_progress(1.0);
  return effect;
}

}  // namespace baton::inline v1::lab
