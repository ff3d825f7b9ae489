// SPDX-License-Identifier: Apache-2.0
// Runs a piece of code once per instruction set that this machine has and the kernels are compiled for.
#pragma once

#include "engine/base/simd_targets.h"
// Before Highway.
#include <hwy/highway.h>
#include <hwy/targets.h>

namespace baton::test {

/// Until destruction, kernels take this target.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t mask) {
    hwy::SetSupportedTargetsForTest(mask);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// Targets with fused multiply-add share all bits; the plain baseline rounds products and is only close.
inline bool is_fused(std::int64_t target) { return target != HWY_EMU128 && target != HWY_SCALAR; }
inline bool machine_is_fused() { return is_fused(hwy::SupportedAndGeneratedTargets().front()); }

}  // namespace baton::test
