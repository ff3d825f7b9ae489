// SPDX-License-Identifier: Apache-2.0
// A device against a reference, in seconds: whether its operations, copies and replays give what they should.
#pragma once

#include <functional>
#include <string>

#include "engine/backend/backend.h"

namespace baton {

struct SelfTestPart {
  std::string name;     // "attention, heads of 64"
  std::string problem;  // what went wrong, or empty
  double milliseconds = 0;
};

/// Runs one part, which returns what went wrong or an empty text. An exception is its problem, too.
SelfTestPart run_self_test_part(std::string name, const std::function<std::string()>& part);

/// Runs every part on both backends and reports each. `reference` is the CPU. Threads: one caller at a time,
/// as of the backends.
void run_self_test(Backend& subject, Backend& reference, const std::function<void(const SelfTestPart&)>& on_part);

}  // namespace baton
