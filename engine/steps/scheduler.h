// SPDX-License-Identifier: Apache-2.0
// Which rows go into the next step: one for every decoding sequence, then chunks of prompts, oldest first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// What a sequence has to run.
struct Pending {
  std::int32_t tokens = 0;  // not run yet, at least 1
  bool decoding = false;
};

/// How many rows of each sequence the next step takes, in the order given (oldest first); 0: none. Decoding sequences
/// always get their row, so a long prompt slows them down by at most the time of `max_rows` rows, and never stops them.
std::vector<std::int32_t> plan_step(std::span<const Pending> sequences, std::int32_t max_rows);

}  // namespace baton
