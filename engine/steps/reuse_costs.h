// SPDX-License-Identifier: Apache-2.0
// ReuseCosts: measured times of this engine per computed token and per copied token.
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/forward.h"

namespace baton {

class ReuseCosts {
 public:
  /// row_ms: milliseconds of one row through all layers, in steps that prefill. copy_ms: milliseconds of one placed
  /// token. 0: not measured yet.
  double row_ms() const { return row_ms_; }
  double copy_ms() const { return copy_ms_; }

  /// Adds the times of a prefill step. A row counts by the number of layers in its path.
  void on_step(std::span<const RowPath> paths, const StepTimes& times);
  void on_copy(std::int32_t tokens, double milliseconds);

 private:
  double row_ms_ = 0.0;
  double copy_ms_ = 0.0;
};

}  // namespace baton
