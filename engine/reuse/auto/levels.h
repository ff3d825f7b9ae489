// SPDX-License-Identifier: Apache-2.0
// What method auto knows: RelayLevels, what rectification leaves on one model, and RelayHistory, what it left in turns
// that were measured (engine/loop/relay_probe.h), for each place. The history corrects the levels, and makes those of a
// model about which nothing is known (docs/decisions/auto.md). Data alone: no clock, no files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/base/hash.h"
#include "engine/reuse/options.h"

namespace baton {
constexpr double kMinDivergence = 1e-9;  // nats; the least of which a logarithm is taken
/// Reuse at which the guard decides. Above, it passes too much; below, what it looks at is too small to tell.
constexpr double kMinGuardedReuse = 0.75, kMaxGuardedReuse = 0.8;

/// The divergence that remains when the fraction `reuse` of the (token, layer) entries of handed-over texts is reused.
struct RelayLevel {
  double reuse = 0.0;
  double divergence = 0.0;  // mean KL divergence of a turn from full prefill, nats per token
  double high = 0.0;        // 95 % of the turns are expected to stay below this, nats per token
  bool operator==(const RelayLevel&) const = default;
};

struct RelayLevels {
  LayerRange range;                // of all levels, because authors keep hidden states of one layer
  std::vector<RelayLevel> levels;  // the cheapest (highest reuse) first; empty: not measured
  /// The divergence of a prompt is expected to be this times what its guard (schedule.h) measures: both are quadratic
  /// in small changes. 0: unknown.
  double guard_scale = 0.0;
  bool assumed = false;    // typical of other models, and nothing was measured of this one: they allow nothing
  bool shipped = false;    // they come with Baton
  std::int32_t turns = 0;  // measured turns that corrected the levels; 0: the model's own
  bool of_place = false;   // those turns are the place's; else the model's, of all its places
  std::string unguarded;   // why the guard cannot decide in the place; empty: it can

  /// The cheapest level that is expected to stay within the tolerance: in 95 % of the turns or, at kMinGuardedReuse to
  /// kMaxGuardedReuse, on average, since the guard then decides each prompt, if it is known and not `unguarded`. Null:
  /// none.
  const RelayLevel* within(double tolerance) const;
  bool operator==(const RelayLevels&) const = default;
};

/// The levels to begin with on a model of L layers about which nothing is known: their proportions are those of models
/// that were measured. Empty for a model with too few layers.
RelayLevels assumed_levels(std::int32_t layers);

/// The beginning of a reason that follows from the levels: what they rest on; empty for those of the model's own file.
std::string basis_of(const RelayLevels& levels);

/// A PlaceId means a reader and the fixed text that its prompt begins with.

/// Returns the place of a prompt. Its parts have `slot` and `tokens` (PromptPart, EarlyPart).
template <class Part>
PlaceId place_of(const std::string& reader, const std::vector<Part>& prompt) {
  std::uint64_t hash = hash_bytes(reader.data(), reader.size());
  for (const Part& part : prompt) {
    if (!part.slot.empty()) break;
    hash = hash_bytes(part.tokens.data(), part.tokens.size() * sizeof(part.tokens.front()), hash);
  }
  return hash;
}

/// One measured turn.
struct RelayObservation {
  double reuse = 0.0;       // fraction of the (token, layer) entries of the texts handed over that was reused
  double divergence = 0.0;  // mean KL divergence from full prefill, nats per token
  double guard = -1.0;      // the divergence that the guard expected, nats per token; below 0: unknown
  bool operator==(const RelayObservation&) const = default;
};

class RelayHistory {
 public:
  static constexpr std::size_t kMaxPlaces = 4096;      // beyond them the least recently used one is dropped
  static constexpr std::size_t kMaxObservations = 32;  // of a place: the newest
  static constexpr std::size_t kEnough = 3;            // observations from which a place, or a model, decides
  static constexpr std::size_t kOfModel = 64;          // places, the last used ones, from which a model decides
  static constexpr std::uint32_t kTries = 8;           // turns that may fail to be measured before
  static constexpr std::uint32_t kCheck = 16;          // from then on, one turn in so many is measured

  struct Place {
    std::vector<RelayObservation> observations;  // the oldest first
    std::uint32_t turns = 0;                     // in all, or since `kEnough` observations were there
    std::uint64_t last_use = 0;                  // ascends with each use
    bool operator==(const Place&) const = default;
  };

  /// Counts a turn of a place. Returns true when it is to be measured.
  bool wants(PlaceId place);
  void add(PlaceId place, const RelayObservation& observation);
  bool knows_enough(PlaceId place) const;

  /// Returns the model's levels as they are expected in the place; without `kEnough` observations, as they are. Assumed
  /// levels are corrected by the observations of all places then, if these are enough. The guard cannot decide in a
  /// place if it refused half of the measured turns, so that more would be lost than gained, or passed more than one in
  /// 20 (one more is forgiven) that are above the tolerance. Each observation is compared with the divergence of the
  /// model's levels at its reuse, and the logarithms of these ratios are taken as normally distributed: `divergence`
  /// follows from their mean, `high` from the 95 % quantile of the next one (Student's, since mean and deviation are
  /// estimates). Assumed levels get the guard's factor in the same way.
  RelayLevels levels_for(PlaceId place, const RelayLevels& of_model, double tolerance) const;

  const std::map<PlaceId, Place>& places() const { return places_; }
  /// The observations of the places that were used last.
  std::vector<RelayObservation> last_used() const;
  /// Puts a place back that was kept elsewhere. Places are put back in the order of their last use.
  void restore(PlaceId id, std::vector<RelayObservation> observations, std::uint32_t turns);

  bool operator==(const RelayHistory&) const = default;

 private:
  Place& use(PlaceId id);

  std::map<PlaceId, Place> places_;
  std::uint64_t uses_ = 0;
};

/// The one-sided 95 % quantile of Student's distribution; `freedom`: degrees of freedom, at least 1.
double student_quantile(std::size_t freedom);

/// How far above the mean of these logarithms of divergences the next one stays in 95 % of the cases, when they are
/// normally distributed with a deviation of at least 0.5: Student's, since mean and deviation are estimates.
double next_margin(std::span<const double> logs);

}  // namespace baton
