// SPDX-License-Identifier: Apache-2.0
// The layers that RelayCaching recomputes, found from how far reused values deviate in each layer (docs/methods.md;
// RelayCaching, section 4.2). Mathematics only: engine/learning/profiler.h measures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

/// The paper's Table 4, and one of ours.
struct RangeSettings {
  double similarity = 0.99;  // a layer above it is reused as it is
  std::int32_t tail = 5;     // last layers, from which the stable regime is estimated
  double deviations = 2.0;   // standard deviations by which a stable layer may differ
  std::int32_t rises = 3;    // layers with rising similarity before the end may come
  std::int32_t stable = 2;   // stable layers in a row that make the end
  double flat = 0.01;        // ours: a second difference of the correlation no larger than that is noise
};

/// What stability of the deep layers is read from (eq. 3, whose symbol did not survive in the texts we have).
enum class EndReading : std::uint8_t {
  slope,  // how much similarity still grows from layer to layer
  level,  // similarity itself
};
const char* name_of(EndReading reading);

struct LayerCurves {
  std::vector<double> similarity;   // [L] S^l, eq. 2
  std::vector<double> correlation;  // [L - 1] rho^l, rank correlation of d^l and d^(l+1); NaN: not known
  double rounding = 0.0;            // a layer with 1 - S^l below it differs by rounding alone
};

/// Below it there is nothing to choose: l_s < l_d < l_e takes three.
inline constexpr std::int32_t kFewestRangeLayers = 4;

struct FoundRange {
  LayerRange range;     // valid for the model's layers, unless there is a problem
  std::string problem;  // why there is no range, or empty
};

/// l_s, l_d and l_e. l_s: the deepest layer above the lowest with S >= 0.99 there and in all before it. l_e: the first
/// layer behind the lowest that is followed by stable ones, else the last. l_d: one behind the first layer in which the
/// correlation's growth slows down (eq. 4); l_s + 1 where that is before it, or nowhere. All are moved, where need be,
/// to 0 <= l_s < l_d < l_e < L. No range: fewer than 4 layers, or a similarity that is not a number.
/// Throws std::invalid_argument when the curves' lengths do not fit.
FoundRange find_range(const LayerCurves& curves, EndReading reading, const RangeSettings& settings = {});

/// Rank correlation; ties get the mean of their ranks. NaN when there are fewer than two pairs, when either list is
/// constant or when one holds a NaN. Throws std::invalid_argument when the lengths differ.
double spearman(std::span<const double> a, std::span<const double> b);

}  // namespace baton
