// SPDX-License-Identifier: Apache-2.0
// The choice of the tokens of a reused segment that are recomputed after the detection layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

/// Returns one flag per token of a segment at the detection layer, from the tokens' deviations (RelayCaching eq. 1) and
/// received attention (eq. 6; empty: unknown). A deviation below the arithmetic's rounding never chooses a token.
std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received);

/// Chooses before the prompt runs: the fraction `options.share` of the tokens, those with the largest entropy. The
/// head, and then the suffix, count towards the fraction.
std::vector<bool> select_by_entropy(const SelectionOptions& options, std::span<const float> entropy);

/// Chooses by the author's entropy and received attention, each as a fraction of its sum. Either may be empty: unknown.
std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received);

/// Returns flags of the `count` largest scores; among equal scores, later tokens come first.
std::vector<bool> largest(std::span<const double> scores, std::size_t count);

}  // namespace baton
