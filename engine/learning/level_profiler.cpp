// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/level_profiler.h"

#include <algorithm>
#include <cmath>

#include "engine/learning/hand_over_measurement.h"

namespace baton {
namespace {

ReuseOptions candidate(const LayerRange& range, double reuse) {
  ReuseOptions options;
  options.method = &method_of(MethodId::rectify);
  options.range = range;
  options.correct = false;
  options.reuse = reuse;
  return options;
}

}  // namespace

RelayLevel level_of(double reuse, std::span<const double> divergences) {
  constexpr double kFloor = 1e-9, kQuantile = 1.645;
  RelayLevel level{reuse, 0.0, 0.0};
  double logs = 0.0, squares = 0.0;
  const auto n = static_cast<double>(divergences.size());
  for (const double value : divergences) {
    const double log = std::log(std::max(value, kFloor));
    level.divergence += value / n;
    logs += log / n;
    squares += log * log / n;
  }
  level.high = std::exp(logs + kQuantile * std::sqrt(std::max(0.0, squares - logs * logs)));
  level.high = std::max(level.high, level.divergence);
  return level;
}

double fit_guard(std::span<const GuardPoint> points) {
  double logs = 0.0, n = 0.0;
  for (const GuardPoint& point : points) {
    if (point.left <= 0.0 || point.divergence <= 0.0) continue;
    logs += std::log(point.divergence / point.left);
    n += 1.0;
  }
  return n > 0.0 ? std::exp(logs / n) : 0.0;
}

std::optional<RelayLevels> measure_levels(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const LevelOptions& asked) {
  RelayLevels found;
  found.range = LayerRange::by_depth(engine.model().config.layers);
  if (!found.range.valid(engine.model().config.layers)) return std::nullopt;
  HandOverMeasurement measurement(engine, engine, hand_overs, options, asked.reply_tokens);
  const auto progress = [&](double share) {
    if (options.on_progress) options.on_progress(share);
  };
  progress(0.0);
  if (!measurement.prepare([&](double share) { progress(0.4 * share); }) || measurement.empty()) return std::nullopt;
  std::vector<ReuseOptions> candidates;
  for (const double reuse : asked.reuse) candidates.push_back(candidate(found.range, reuse));
  std::vector<std::vector<double>> left;
  const auto divergences = measurement.measure(candidates, &left, [&](double share) { progress(0.4 + 0.6 * share); });
  if (!divergences) return std::nullopt;
  std::vector<GuardPoint> points;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    for (std::size_t i = 0; i < left[c].size(); ++i) points.push_back({left[c][i], (*divergences)[c][i]});
  }
  found.guard_scale = fit_guard(points);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    found.levels.push_back(level_of(asked.reuse[i], (*divergences)[i]));
  progress(1.0);
  return found;
}

}  // namespace baton
