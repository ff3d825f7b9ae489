// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/auto/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace baton {
RelayLevels assumed_levels(std::int32_t layers) {
  RelayLevels levels;
  levels.range = LayerRange::by_depth(layers);
  if (!levels.range.valid(layers)) return {};
  // Geometric means over SmolLM2-135M, Gemma 3 270M and Qwen2.5-Coder-0.5B (engine/learning/levels).
  levels.levels = {
      {0.9, 0.0067, 0.03}, {0.8, 0.0046, 0.02}, {0.7, 0.0039, 0.016}, {0.6, 0.0038, 0.015}, {0.5, 0.0031, 0.012}};
  levels.guard_scale = 0.055;
  levels.assumed = true;
  return levels;
}

std::string basis_of(const RelayLevels& levels) {
  if (levels.turns == 0) return levels.shipped ? "levels that come with Baton: " : "";
  return fmt::format("{} measured turns of this {}: ", levels.turns, levels.of_place ? "place" : "model");
}

const RelayLevel* RelayLevels::within(double tolerance) const {
  if (assumed) return nullptr;
  const bool guarded = guard_scale > 0.0 && unguarded.empty();
  const auto found = std::find_if(levels.begin(), levels.end(), [&](const RelayLevel& level) {
    const bool watched = guarded && level.reuse >= kMinGuardedReuse && level.reuse <= kMaxGuardedReuse;
    return level.high <= tolerance || (watched && level.divergence <= tolerance);
  });
  return found == levels.end() ? nullptr : &*found;
}

namespace {

constexpr double kMinDeviation = 0.5;  // of the logarithms: a few values can agree by chance

/// Returns the divergence at any reuse: between two levels by its logarithm, beyond them that of the nearest.
double divergence_at(const std::vector<RelayLevel>& levels, double reuse) {
  const auto below =
      std::find_if(levels.begin(), levels.end(), [&](const RelayLevel& level) { return level.reuse <= reuse; });
  if (below == levels.begin()) return std::max(levels.front().divergence, kMinDivergence);
  if (below == levels.end()) return std::max(levels.back().divergence, kMinDivergence);
  const RelayLevel& above = *std::prev(below);
  const double weight = (reuse - below->reuse) / (above.reuse - below->reuse);
  return std::exp(weight * std::log(std::max(above.divergence, kMinDivergence)) +
                  (1.0 - weight) * std::log(std::max(below->divergence, kMinDivergence)));
}

/// Why the guard cannot decide after these turns; empty: it can. `factor`: of what it expected.
std::string unguarded_because(const std::vector<RelayObservation>& observations, double factor, double tolerance) {
  constexpr std::size_t kPassedWell = 20;  // of so many turns that the guard passes, one may be above the tolerance
  std::size_t refused = 0, above = 0;
  for (const RelayObservation& one : observations) {
    if (one.guard * factor > tolerance)
      ++refused;
    else if (one.divergence > tolerance)
      ++above;
  }
  if (2 * refused >= observations.size()) return fmt::format("its guard refused {} of them", refused);
  if (above > 1 + (observations.size() - refused) / kPassedWell)
    return fmt::format("its guard missed {} of them", above);
  return "";
}

}  // namespace

double student_quantile(std::size_t freedom) {
  constexpr std::array kQuantiles = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796,
                                     1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717,
                                     1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697, 1.696};
  return kQuantiles[std::clamp<std::size_t>(freedom, 1, kQuantiles.size()) - 1];
}

double next_margin(std::span<const double> logs) {
  double mean = 0.0, squares = 0.0;
  const auto n = static_cast<double>(logs.size());
  for (const double log : logs) mean += log / n;
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const std::size_t freedom = std::max<std::size_t>(logs.size(), 2) - 1;
  const double deviation = std::max(std::sqrt(squares / static_cast<double>(freedom)), kMinDeviation);
  return student_quantile(freedom) * deviation * std::sqrt(1.0 + 1.0 / n);
}

RelayHistory::Place& RelayHistory::use(PlaceId id) {
  Place& place = places_[id];
  place.last_use = ++uses_;
  if (places_.size() > kMaxPlaces) {
    places_.erase(std::min_element(places_.begin(), places_.end(),
                                   [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
  }
  return place;
}

bool RelayHistory::wants(PlaceId id) {
  Place& place = use(id);
  ++place.turns;
  return (place.observations.size() < kEnough && place.turns <= kTries) || place.turns % kCheck == 0;
}

void RelayHistory::add(PlaceId id, const RelayObservation& observation) {
  Place& place = use(id);
  place.observations.push_back(observation);
  if (place.observations.size() == kEnough) place.turns = 0;
  if (place.observations.size() > kMaxObservations) place.observations.erase(place.observations.begin());
}

bool RelayHistory::knows_enough(PlaceId id) const {
  const auto found = places_.find(id);
  return found != places_.end() && found->second.observations.size() >= kEnough;
}

void RelayHistory::restore(PlaceId id, std::vector<RelayObservation> observations, std::uint32_t turns) {
  Place& place = use(id);
  place.observations = std::move(observations);
  place.turns = turns;
}

std::vector<RelayObservation> RelayHistory::last_used() const {
  std::vector<const Place*> places;
  for (const auto& [id, place] : places_) places.push_back(&place);
  const std::size_t count = std::min(places.size(), kOfModel);
  std::partial_sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count), places.end(),
                    [](const Place* a, const Place* b) { return a->last_use > b->last_use; });
  std::vector<RelayObservation> all;
  for (std::size_t i = 0; i < count; ++i)
    all.insert(all.end(), places[i]->observations.begin(), places[i]->observations.end());
  return all;
}

namespace {

/// The factor by which what the guard expected is to be multiplied: the geometric mean of these turns, and its 95 %
/// bound above, so that few turns make the guard careful. 0: nothing is known.
double guard_factor(const std::vector<RelayObservation>& observations) {
  std::vector<double> logs;
  double mean = 0.0;
  for (const RelayObservation& one : observations) {
    if (one.guard <= 0.0 || one.divergence <= 0.0) continue;
    logs.push_back(std::log(one.divergence / one.guard));
    mean += logs.back();
  }
  if (logs.empty()) return 0.0;
  const auto n = static_cast<double>(logs.size());
  return std::exp(mean / n + next_margin(logs) / std::sqrt(n + 1.0));
}

}  // namespace

RelayLevels RelayHistory::levels_for(PlaceId id, const RelayLevels& of_model, double tolerance) const {
  if (of_model.levels.empty()) return of_model;
  const bool of_place = knows_enough(id);
  if (!of_place && !of_model.assumed) return of_model;
  const std::vector<RelayObservation> all = of_model.assumed ? last_used() : std::vector<RelayObservation>();
  const std::vector<RelayObservation>& observations = of_place ? places_.at(id).observations : all;
  RelayLevels levels = of_model;
  levels.turns = static_cast<std::int32_t>(observations.size());
  levels.of_place = of_place;
  if (observations.size() < kEnough) return levels;
  levels.assumed = false;
  double mean = 0.0;
  std::vector<double> logs;
  for (const RelayObservation& one : observations) {
    logs.push_back(std::log(std::max(one.divergence, kMinDivergence) / divergence_at(of_model.levels, one.reuse)));
    mean += logs.back() / static_cast<double>(observations.size());
  }
  const double margin = next_margin(logs);
  const double factor = of_model.assumed ? guard_factor(all) : 1.0;
  levels.guard_scale *= factor;
  if (of_place) levels.unguarded = unguarded_because(observations, factor, tolerance);
  for (RelayLevel& level : levels.levels) {
    level.divergence *= std::exp(mean);
    level.high = level.divergence * std::exp(margin);
  }
  return levels;
}

}  // namespace baton
