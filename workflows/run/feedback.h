// SPDX-License-Identifier: Apache-2.0
// What an attempt at a turn is told of those before it: each output that failed its check, and why it failed.
#pragma once

#include <string>
#include <vector>

#include "workflows/run/turn.h"

namespace baton {

/// An output that did not pass its check.
struct FailedOutput {
  std::string text;
  std::vector<TokenId> tokens;  // the ids that were generated; empty where only the text may move on
  std::string problem;
};

/// Makes `input` that of a further attempt: `retry.feedback` stands behind the last message, once for each failed
/// output, with the problem as data, cut to 1000 bytes. So no attempt has the prompt of another, and what stands before
/// is there as KV. `failed` must outlive `input`.
void add_feedback(TurnInput& input, const std::vector<FailedOutput>& failed);

}  // namespace baton
