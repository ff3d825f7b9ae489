// SPDX-License-Identifier: Apache-2.0
// ReuseCosts: the measured time of this engine per computed token.
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/step.h"

namespace baton {

class ReuseCosts {
 public:
  /// Milliseconds of one row through all layers, in steps that prefill. 0: not measured yet.
  double row_ms() const { return row_ms_; }

  /// Adds the times of a prefill step. A row counts by the number of layers in its path.
  void on_step(std::span<const RowPath> paths, const StepTimes& times);

 private:
  double row_ms_ = 0.0;
};

}  // namespace baton
