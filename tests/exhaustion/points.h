// SPDX-License-Identifier: Apache-2.0
// Tries a scenario once for each point at which it can fail, in child processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/exhaustion/faults.h"

namespace baton::test {

/// What is run under faults. Made anew in each child process, without faults.
class Scenario {
 public:
  virtual ~Scenario() = default;
  /// Runs once. Returns the answer, or throws what the host gets to see.
  virtual std::string run() = 0;
  /// True where a run that ends well although something failed must still give the same answer.
  virtual bool exact() const { return true; }
};

struct Points {
  Fault fault = Fault::allocation;
  std::int64_t faults = 1;  // consecutive ones at each point
  std::int64_t step = 1;    // distance of the points
};

struct PointsResult {
  std::int64_t points = 0;
  std::int64_t failed = 0;            // runs that ended with an error, as they may
  std::vector<std::string> problems;  // signals, hangs, wrong answers, errors without a text
};

/// Runs the scenario with a fault at each point, and behind each fault without one in the same process, whose answer
/// must be that of a process without faults.
PointsResult try_points(const std::function<std::unique_ptr<Scenario>()>& make, const Points& points);

}  // namespace baton::test
