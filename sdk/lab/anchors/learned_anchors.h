// SPDX-License-Identifier: Apache-2.0
// What the bench fills for method anchors: pools with random texts and offsets.
#pragma once

#include "sdk/lab/bench_agents.h"

namespace baton::inline v1::lab {

std::unique_ptr<LearnedState> learned_anchors(std::uint64_t seed);

}  // namespace baton::inline v1::lab
