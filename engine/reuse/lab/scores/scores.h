// SPDX-License-Identifier: Apache-2.0
// The scores by which method rectify can choose tokens other than by their change: by deviation and received attention
// (RelayCaching, with its preset), by the author's entropy, by both. Received attention and the suffix choose tokens
// without any computation. Where the author's entropy or attention alone chooses, the tokens are not compared.
#pragma once

#include "engine/reuse/rectify/rectify.h"

namespace baton {

const TokenScores& lab_token_scores();

/// Returns one flag per token of a segment at the detection layer, from the tokens' deviations (RelayCaching eq. 1) and
/// received attention (eq. 6; empty: unknown). A deviation below the arithmetic's rounding never chooses a token.
std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received);

/// Chooses by the author's entropy and received attention, each as a fraction of its sum. Either may be empty: unknown.
std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received);

}  // namespace baton
