// SPDX-License-Identifier: Apache-2.0
// What an attempt at a turn is told of those before it: each output that failed its check, and why it failed.
#pragma once

#include <string>
#include <vector>

#include "workflows/plan/plan.h"

namespace baton {

/// An output that did not pass its check.
struct FailedOutput {
  std::string text;
  std::string problem;
};

/// The messages of a further attempt: `retry.feedback` stands behind the last message, once for each failed output,
/// with the output and the problem as data, the latter cut to 1000 bytes. So no attempt has the prompt of another, and
/// what stands before is there as KV.
std::vector<PromptMessage> messages_after(const PlannedTurn& turn, const std::vector<FailedOutput>& failed);

}  // namespace baton
