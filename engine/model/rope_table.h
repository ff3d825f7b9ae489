// SPDX-License-Identifier: Apache-2.0
// RopeTable: the angles of all positions up to the largest seen, in backend memory. They are computed once; steps
// gather from the table, and placing KV points into it.
#pragma once

#include "engine/backend/device.h"
#include "engine/backend/operations.h"
#include "engine/model/rope.h"

namespace baton {

/// Not thread-safe. The device and the rope must outlive the object.
class RopeTable {
 public:
  RopeTable(Device& device, const Rope& rope) : device_(device), rope_(rope) {}

  /// Returns the angles of positions [begin, begin + n), valid until a call for larger positions. Throws BackendError
  /// when there is no memory.
  RopeAngles range(std::int32_t begin, std::int32_t n);

 private:
  void grow(std::int32_t positions);

  Device& device_;
  const Rope& rope_;
  Buffer memory_;  // cos [positions, R/2], sin
  std::int32_t positions_ = 0;
};

}  // namespace baton
