// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/profile/layer_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace baton {
namespace {

double at(const std::vector<double>& values, std::int32_t layer) { return values[static_cast<std::size_t>(layer)]; }

/// Returns the layer of lowest similarity, or the last layer when no layer deviates by more than rounding.
std::int32_t lowest_layer(const LayerCurves& curves) {
  const auto lowest = std::min_element(curves.similarity.begin(), curves.similarity.end());
  if (1.0 - *lowest <= curves.rounding) return static_cast<std::int32_t>(curves.similarity.size()) - 1;
  return static_cast<std::int32_t>(lowest - curves.similarity.begin());
}

std::int32_t start_layer(const LayerCurves& curves, std::int32_t lowest, const RangeSettings& settings) {
  std::int32_t start = 0;
  for (std::int32_t l = 0; l < lowest && at(curves.similarity, l) >= settings.similarity; ++l) start = l;
  return start;
}

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;
};

Spread spread_of_tail(const std::vector<double>& values, std::int32_t tail) {
  const auto count = std::min(values.size(), static_cast<std::size_t>(std::max(1, tail)));
  const std::span<const double> last(values.data() + values.size() - count, count);
  Spread spread;
  for (const double value : last) spread.mean += value / static_cast<double>(count);
  for (const double value : last)
    spread.deviation += (value - spread.mean) * (value - spread.mean) / static_cast<double>(count);
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

std::int32_t end_layer(const LayerCurves& curves, std::int32_t lowest, EndReading reading,
                       const RangeSettings& settings) {
  const std::vector<double>& level = curves.similarity;
  const auto layers = static_cast<std::int32_t>(level.size());
  std::vector<double> slope;  // slope[l - 1] is from layer l - 1 to l
  for (std::int32_t l = 1; l < layers; ++l) slope.push_back(at(level, l) - at(level, l - 1));
  const Spread slopes = spread_of_tail(slope, settings.tail);
  const Spread levels = spread_of_tail(level, settings.tail);
  const auto is_stable = [&](std::int32_t l) {
    return reading == EndReading::slope ? at(slope, l - 1) <= slopes.mean + settings.deviations * slopes.deviation
                                        : at(level, l) >= levels.mean - settings.deviations * levels.deviation;
  };
  std::int32_t rises = 0;
  std::int32_t stable = 0;  // in a row, up to l
  for (std::int32_t l = lowest + 1; l < layers; ++l) {
    // The end is the layer before the stable ones; the similarity must have risen before.
    const bool counts = reading == EndReading::level ? l - 1 > lowest : rises >= settings.rises;
    stable = is_stable(l) && counts ? stable + 1 : 0;
    if (stable == settings.stable) return l - settings.stable;
    if (at(slope, l - 1) > 0) ++rises;
  }
  return layers - 1;
}

/// The paper takes the first change of sign from positive to negative. Where growth slows down from the first layer on
/// (for example when the first layers are left out as rounding noise), a later change of sign is only a ripple of the
/// plateau: on the nano model it was layer 6 of 10. So the first clearly negative second difference counts.
std::int32_t detection_layer(const std::vector<double>& correlation, std::int32_t start, double flat) {
  for (std::int32_t l = 1; l + 1 < static_cast<std::int32_t>(correlation.size()); ++l) {
    const double bend = at(correlation, l + 1) - 2 * at(correlation, l) + at(correlation, l - 1);
    if (bend < -flat) return std::max(l, start) + 1;  // false for NaN
  }
  return start + 1;
}

/// The paper's reading of eq. 4: the first layer above l_s in which the second difference turns negative.
std::int32_t turning_layer(const std::vector<double>& correlation, std::int32_t start) {
  const auto bend = [&](std::int32_t l) {
    return at(correlation, l + 1) - 2 * at(correlation, l) + at(correlation, l - 1);
  };
  for (std::int32_t l = std::max(2, start + 1); l + 1 < static_cast<std::int32_t>(correlation.size()); ++l) {
    if (bend(l - 1) > 0.0 && bend(l) < 0.0) return l + 1;  // false for NaN
  }
  return start + 1;
}

/// Returns [n]: the rank of each value, from 1; equal values get the mean of their ranks.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + end + 1);
    begin = end;
  }
  return ranks;
}

}  // namespace

const char* name_of(EndReading reading) { return reading == EndReading::slope ? "slope" : "level"; }

FoundRange find_range(const LayerCurves& curves, EndReading reading, const RangeSettings& settings) {
  const auto layers = static_cast<std::int32_t>(curves.similarity.size());
  if (layers > 0 && curves.correlation.size() + 1 != curves.similarity.size()) {
    throw std::invalid_argument(
        fmt::format("layer range: {} correlations for {} layers; expected one fewer than layers",
                    curves.correlation.size(), layers));
  }
  if (layers < kMinRangeLayers) {
    return {{},
            fmt::format("a model of {} layers has no layer range; at least {} are needed", layers, kMinRangeLayers)};
  }
  for (std::int32_t l = 0; l < layers; ++l) {
    if (!std::isfinite(at(curves.similarity, l)))
      return {{}, fmt::format("the similarity of layer {} is not a number", l)};
  }
  const std::int32_t lowest = lowest_layer(curves);
  LayerRange range;
  range.start = std::min(start_layer(curves, lowest, settings), layers - 3);
  range.end = std::clamp(end_layer(curves, lowest, reading, settings), range.start + 2, layers - 1);
  range.detect = std::min(settings.turn ? turning_layer(curves.correlation, range.start)
                                        : detection_layer(curves.correlation, range.start, settings.flat),
                          range.end - 1);
  return {range, {}};
}

double spearman(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw std::invalid_argument(fmt::format("spearman: {} values and {}", a.size(), b.size()));
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (a.size() < 2 || std::any_of(a.begin(), a.end(), is_nan) || std::any_of(b.begin(), b.end(), is_nan))
    return kUnknown;
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = 0.5 * static_cast<double>(a.size() + 1);
  double xx = 0.0, yy = 0.0, xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
    xy += (x[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kUnknown;
}

}  // namespace baton
