// SPDX-License-Identifier: Apache-2.0
// RopeTable: the angles of all positions up to the largest seen, of every RoPE of a model, in backend memory. They are
// computed once; steps gather from the table, and placing KV points into it.
#pragma once

#include <vector>

#include "engine/backend/device.h"
#include "engine/backend/operations.h"
#include "engine/model/rope.h"

namespace baton {

/// Not thread-safe. The device and the ropes must outlive the object.
class RopeTable {
 public:
  RopeTable(Device& device, const LayerRopes& ropes)
      : device_(device), ropes_(ropes), memory_(ropes.distinct().size()) {}

  const LayerRopes& ropes() const { return ropes_; }

  /// Returns the angles of positions [begin, begin + n) of ropes().distinct()[rope], valid until a call for larger
  /// positions. Throws BackendError when there is no memory.
  RopeAngles range(std::size_t rope, std::int32_t begin, std::int32_t n);

  /// Returns the angles of all positions computed so far.
  RopeAngles all(std::size_t rope) { return range(rope, 0, positions_); }

  /// Computes the angles of positions [0, positions) now. Throws BackendError when there is no memory.
  void reserve(std::int32_t positions);

 private:
  Device& device_;
  const LayerRopes& ropes_;
  std::vector<Buffer> memory_;  // of each rope: cos [positions, R/2], sin
  std::int32_t positions_ = 0;
};

}  // namespace baton
