// SPDX-License-Identifier: Apache-2.0
// The angles of all positions up to the longest seen, where the backend can read them: made once, for steps to gather
// and for placing to point into.
#pragma once

#include "engine/backend/device.h"
#include "engine/backend/operations.h"
#include "engine/model/rope.h"

namespace baton {

/// One thread at a time. The device and the rope must outlive it.
class RopeTable {
 public:
  RopeTable(Device& device, const Rope& rope) : device_(device), rope_(rope) {}

  /// Angles of positions [begin, begin + n), valid until a longer range is asked for. Throws BackendError.
  RopeAngles range(std::int32_t begin, std::int32_t n);

 private:
  void grow(std::int32_t positions);

  Device& device_;
  const Rope& rope_;
  Buffer memory_;  // cos [positions, R/2], sin
  std::int32_t positions_ = 0;
};

}  // namespace baton
