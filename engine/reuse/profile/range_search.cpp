// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/profile/range_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/reuse/profile/layer_profile.h"

namespace baton {
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
  for (std::int32_t l = 1; l <= last - 2; ++l) {
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
  for (std::int32_t l = range.start + 1; l < range.end; ++l) {
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

}  // namespace baton
