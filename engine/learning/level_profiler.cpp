// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/level_profiler.h"

#include <algorithm>
#include <cmath>

#include "engine/learning/hand_over_measurement.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton {
namespace {

constexpr std::size_t kFew = 3;  // fewer measured hand-overs say too little, whatever the time

ReuseOptions candidate(const LayerRange& range, double reuse) {
  ReuseOptions options;
  options.method = &rectify_method();
  options.range = range;
  own<RectifyOptions>(options).correct = false;
  own<RectifyOptions>(options).reuse = reuse;
  return options;
}

}  // namespace

RelayLevel level_of(double reuse, std::span<const double> divergences) {
  RelayLevel level{reuse, 0.0, 0.0};
  std::vector<double> logs;
  double sum = 0.0;
  const auto n = static_cast<double>(divergences.size());
  for (const double value : divergences) {
    level.divergence += value / n;
    logs.push_back(std::log(std::max(value, kMinDivergence)));
    sum += logs.back();
  }
  level.high = std::max(level.divergence, std::exp(sum / n + next_margin(logs)));
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
  std::vector<ReuseOptions> candidates;
  for (const double reuse : asked.reuse) candidates.push_back(candidate(found.range, reuse));
  const auto progress = [&](double share) {
    if (options.on_progress) options.on_progress(share);
  };
  std::vector<std::vector<double>> divergences(candidates.size());  // of each candidate, per hand-over
  std::vector<GuardPoint> points;
  // Adds the hand-overs from `begin` to `end`. Returns false when stopped.
  const auto add = [&](std::size_t begin, std::size_t end) {
    const auto whole = static_cast<double>(hand_overs.size());
    const double done = static_cast<double>(begin) / whole, all = static_cast<double>(end - begin) / whole;
    progress(done);
    HandOverMeasurement measurement(engine, engine, hand_overs.subspan(begin, end - begin), options,
                                    asked.reply_tokens);
    if (!measurement.prepare([&](double share) { progress(done + all * 0.4 * share); })) return false;
    if (measurement.empty()) return true;
    std::vector<std::vector<double>> left;
    const auto measured =
        measurement.measure(candidates, &left, [&](double share) { progress(done + all * (0.4 + 0.6 * share)); });
    if (!measured) return false;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      divergences[c].insert(divergences[c].end(), (*measured)[c].begin(), (*measured)[c].end());
      for (std::size_t i = 0; i < left[c].size(); ++i) points.push_back({left[c][i], (*measured)[c][i]});
    }
    return true;
  };
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t first = std::min(std::max<std::size_t>(asked.first, 1), hand_overs.size());
  if (!add(0, first)) return std::nullopt;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const double expected = taken.count() * static_cast<double>(hand_overs.size()) / static_cast<double>(first);
  const bool within = expected <= std::chrono::duration<double>(asked.time).count();
  if ((within || divergences.front().size() < kFew) && !add(first, hand_overs.size())) return std::nullopt;
  if (divergences.front().empty()) return std::nullopt;
  found.guard_scale = fit_guard(points);
  for (std::size_t i = 0; i < candidates.size(); ++i) found.levels.push_back(level_of(asked.reuse[i], divergences[i]));
  progress(1.0);
  return found;
}

}  // namespace baton
