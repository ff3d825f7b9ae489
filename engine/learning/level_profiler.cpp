// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/level_profiler.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

std::vector<LayerRange> level_ranges(std::int32_t layers) {
  std::vector<LayerRange> ranges;
  for (const std::int32_t start : {layers / 12, layers / 6}) {
    for (const std::int32_t end : {layers * 2 / 3, layers * 3 / 4, layers * 7 / 8}) {
      const LayerRange range{start, start + 1, end};
      if (range.valid(layers) && std::find(ranges.begin(), ranges.end(), range) == ranges.end())
        ranges.push_back(range);
    }
  }
  return ranges;
}

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
  const std::vector<LayerRange> ranges = level_ranges(engine.model().config.layers);
  HandOverMeasurement measurement(engine, engine, hand_overs, options, asked.reply_tokens);
  if (ranges.empty() || !measurement.prepare() || measurement.empty()) return std::nullopt;
  const auto all = static_cast<double>(ranges.size() + asked.reuse.size());
  const auto progress = [&](std::size_t done) {
    if (options.on_progress) options.on_progress(static_cast<double>(done) / all);
  };
  RelayLevels found;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ranges.size();) {
    std::vector<ReuseOptions> candidates;
    for (std::size_t same = i; same < ranges.size() && ranges[same].start == ranges[i].start; ++same)
      candidates.push_back(candidate(ranges[same], asked.search));
    const auto divergences = measurement.measure(candidates);
    if (!divergences) return std::nullopt;
    for (std::size_t at = 0; at < candidates.size(); ++at) {
      const double mean = measurement.mean_of((*divergences)[at]);
      if (mean >= least) continue;
      least = mean;
      found.range = candidates[at].range;
    }
    progress(i += candidates.size());
  }
  std::vector<ReuseOptions> candidates;
  for (const double reuse : asked.reuse) candidates.push_back(candidate(found.range, reuse));
  std::vector<std::vector<double>> left;
  const auto divergences = measurement.measure(candidates, &left);
  if (!divergences) return std::nullopt;
  std::vector<GuardPoint> points;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    for (std::size_t i = 0; i < left[c].size(); ++i) points.push_back({left[c][i], (*divergences)[c][i]});
  }
  found.guard_scale = fit_guard(points);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    found.levels.push_back(level_of(asked.reuse[i], (*divergences)[i]));
  progress(static_cast<std::size_t>(all));
  return found;
}

}  // namespace baton
