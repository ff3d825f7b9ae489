// Which tokens of a reused segment are recomputed beyond the detection layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

/// One segment's tokens at the detection layer. All spans have one length, or are empty where nothing is known.
struct SelectionInput {
  std::span<const float> deviation;  // d_i, RelayCaching eq. 1
  std::span<const float> received;   // A_j, eq. 6
  std::span<const float> observers;  // how many later tokens could see each
};

/// One flag per token. Deviations below the rounding of the arithmetic never choose a token.
std::vector<bool> select_tokens(const SelectionOptions& options, const SelectionInput& input);

/// The `count` largest scores; among equals the later token.
std::vector<bool> largest(std::span<const double> scores, std::size_t count);

}  // namespace baton
