// SPDX-License-Identifier: Apache-2.0
// Which tokens of a reused segment are recomputed beyond the detection layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

/// One flag per token of a segment at the detection layer, from their deviations (RelayCaching eq. 1) and the attention
/// they received (eq. 6; empty: not known). Deviations below the rounding of the arithmetic never choose a token.
std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received);

/// The same before anything has run: `options.share` of the tokens, those with the largest entropy. The head, and then
/// the suffix, are part of the budget.
std::vector<bool> select_by_entropy(const SelectionOptions& options, std::span<const float> entropy);

/// By what the author left: entropy and attention received, each as a part of its sum. Either may be empty: not known.
std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received);

/// The `count` largest scores; among equals the later token.
std::vector<bool> largest(std::span<const double> scores, std::size_t count);

}  // namespace baton
