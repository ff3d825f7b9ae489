// SPDX-License-Identifier: Apache-2.0
// ReuseCosts: what this engine was seen to take for a token that is computed, and for one that is copied.
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/forward.h"

namespace baton {

class ReuseCosts {
 public:
  /// Milliseconds of a row through all layers, in steps that prefill, and of a token that is placed; 0: not known yet.
  double row_ms() const { return row_ms_; }
  double copy_ms() const { return copy_ms_; }

  /// A step that prefills took so long for rows with these paths, which count by the layers that they ran through.
  void on_step(std::span<const RowPath> paths, const StepTimes& times);
  void on_copy(std::int32_t tokens, double milliseconds);

 private:
  double row_ms_ = 0.0;
  double copy_ms_ = 0.0;
};

}  // namespace baton
