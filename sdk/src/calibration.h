// SPDX-License-Identifier: Apache-2.0
// Hand-overs to profile a model with when there is no data: word problems, the model's own answers, and other agents
// that read them.
#pragma once

#include <cstdint>
#include <vector>

#include <baton/profile.h>

#include "engine/learning/profiler.h"

namespace baton {

/// `count` hand-overs whose answers the model still has to write. What stands before an answer in the producer's and in
/// the consumer's prompt differs in text and in length; prompts with an answer of `max_tokens` fit the model's context
/// where that is at all possible. The same seed gives the same hand-overs. Throws ModelError (chat template).
std::vector<CalibrationHandOver> synthetic_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                      std::uint64_t seed);

/// `count` hand-overs of given texts: lists of facts, which another agent is asked about. Throws ModelError.
std::vector<CalibrationHandOver> document_hand_overs(const Model& model, std::int32_t count, std::uint64_t seed);

}  // namespace baton
