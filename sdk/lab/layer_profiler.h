// SPDX-License-Identifier: Apache-2.0
// The similarity of reused KV by layer: measured on a model, and the layers of method rectify that RelayCaching derives
// from it (docs/methods.md; RelayCaching, section 4.2).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/learning/profile_files.h"
#include "engine/local_engine.h"
#include "engine/reuse/options.h"
#include "sdk/lab/hand_over_measurement.h"

namespace baton::inline v1::lab {

/// The parameters of the paper's Table 4, and one of ours.
struct RangeSettings {
  double similarity = 0.99;  // layers of at least this similarity are reused unchanged
  std::int32_t tail = 5;     // number of last layers from which the stable regime is estimated
  double deviations = 2.0;   // standard deviations by which a stable layer may differ
  std::int32_t rises = 3;    // minimum layers with rising similarity before the end
  std::int32_t stable = 2;   // consecutive stable layers that mark the end
  double flat = 0.01;        // ours: a second difference of the correlation up to this is noise
  bool turn = false;         // the paper's l_d: where the second difference turns from positive to negative
  std::int32_t own_kv = std::numeric_limits<std::int32_t>::max();  // layers from here on read the KV of others
};

/// The quantity that the stability of the deep layers is read from (eq. 3, whose symbol is illegible in our copies of
/// the paper).
enum class EndReading : std::uint8_t {
  slope,  // the growth of the similarity from layer to layer
  level,  // the similarity itself
};
const char* name_of(EndReading reading);

struct LayerCurves {
  std::vector<double> similarity;   // [L] S^l, eq. 2
  std::vector<double> correlation;  // [L - 1] rho^l, rank correlation of d^l and d^(l+1); NaN: unknown
  double rounding = 0.0;            // a layer with 1 - S^l below this differs by rounding alone
};

struct FoundRange {
  LayerRange range;     // valid for the model's layers when `problem` is empty
  std::string problem;  // why no range was found, or empty
};

/// Returns l_s, l_d and l_e. l_s is the deepest layer before the layer of lowest similarity such that S >= 0.99 in it
/// and in all layers before it. l_e is the first layer after the lowest one that is followed by stable layers, else the
/// last layer. l_d is the layer after the first one in which the correlation's growth slows down (eq. 4), and at least
/// l_s + 1. All are clamped to 0 <= l_s < l_d < l_e < L. There is no range for fewer than 4 layers or when a similarity
/// is not a number. Throws std::invalid_argument when the curves' lengths differ from L and L - 1.
FoundRange find_range(const LayerCurves& curves, EndReading reading, const RangeSettings& settings = {});

/// Returns Spearman's rank correlation; ties get the mean of their ranks. The result is NaN with fewer than two pairs,
/// or when either list is constant or holds a NaN. Throws std::invalid_argument when the lengths differ.
double spearman(std::span<const double> a, std::span<const double> b);

/// One hand-over: the deviation of its reused values from those of a full prefill.
struct LayerSample {
  std::int64_t tokens = 0;
  std::vector<double> deviation;    // [L] mean over tokens of d^l, eq. 1
  std::vector<double> correlation;  // [L - 1] Spearman of (d^l, d^(l+1)) over tokens; NaN: one list is constant
};

/// Makes a sample from the deviations d^l of n tokens in each layer, [L][n].
LayerSample sample_of(const std::vector<std::vector<double>>& deviations);

/// Returns the mean curves. The similarity is the mean over all tokens of all samples. The correlation is the mean over
/// the samples that have one, and NaN where the deviation of either layer is below `rounding`. Throws
/// std::invalid_argument without samples or when their numbers of layers differ.
LayerCurves curves_of(std::span<const LayerSample> samples, double rounding);

struct Certainty {
  std::vector<double> similarity_error;   // [L] standard errors; NaN: unknown
  std::vector<double> correlation_error;  // [L - 1]
  Agreement slope;
  Agreement level;
};

/// Bootstrap over hand-overs: finds the range from `resamples` draws of as many samples, with replacement, and compares
/// it with the range of all samples. The same seed gives the same numbers.
Certainty bootstrap(std::span<const LayerSample> samples, double rounding, std::uint64_t seed,
                    std::int32_t resamples = 1000, const RangeSettings& settings = {});

struct MeasuredProfile {
  LayerCurves curves;
  Certainty certainty;
  FoundRange slope;
  FoundRange level;
  std::int32_t hand_overs = 0;  // measured hand-overs
  std::int32_t left_out = 0;    // hand-overs that are too short, or longer than the context
  std::int64_t tokens = 0;      // compared tokens
};

/// Returns the deviation below which two values differ only by the rounding of the cache's type.
double rounding_of(DType kv_dtype);

/// Measures all hand-overs, in shared steps. Empty when it was stopped. The calling thread waits; not to be called from
/// a callback of the engine. Throws EngineError when a request fails, ModelError when the model has fewer than 4 layers
/// or no hand-over could be measured.
std::optional<MeasuredProfile> measure_profile(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                               const ProfilerOptions& options);

/// The layers that RelayCaching's own rules find in a profile's curves: l_e by the slope (eq. 3), l_d where the second
/// difference of the correlation turns negative (eq. 4). `rounding`: rounding_of the type of the measured caches.
LayerRange paper_range_of(const StoredProfile& profile, double rounding, std::int32_t own_kv);

/// Makes the profile of a measurement on `model`; the reading is slope. Throws ModelError when no range was found.
StoredProfile to_stored(const MeasuredProfile& measured, const Model& model, std::string source);

/// Registers the laboratory's methods, and how the layers of RelayCaching's profiler are found. A program calls it once
/// at its start, while it has one thread.
void register_lab();

}  // namespace baton::inline v1::lab
