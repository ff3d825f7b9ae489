// SPDX-License-Identifier: Apache-2.0
// The rows of the next engine step: one for every decoding sequence, then chunks of prompts, oldest first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// The tokens that a sequence has left to run.
struct Pending {
  std::int32_t tokens = 0;  // at least 1
  bool decoding = false;
};

/// Returns the number of rows of each sequence in the next step, in the given order (oldest first). Decoding sequences
/// always get their row, so a long prompt slows them down by at most the time of `max_rows` rows and never stops them.
std::vector<std::int32_t> plan_step(std::span<const Pending> sequences, std::int32_t max_rows);

}  // namespace baton
