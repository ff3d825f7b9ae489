// SPDX-License-Identifier: Apache-2.0
// How fast an opened model runs: prefill and decode of the bare model, and prompt rows in its decode steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sdk/src/internal.h"

#include <baton/rates.h>

namespace baton::inline v1 {

struct RatesToMeasure {
  std::vector<int> prefill;  // prompt lengths in tokens
  std::vector<DecodeStep> decode;
  double gemm_gflops = 0;  // limits of the machine, by which shares are given; 0: unknown
  double bandwidth_gbs = 0;
  std::function<bool(const std::string& what)> go_on;  // called before each measurement; false: stop
};

/// Adds what was measured to `prefill` and `decode`.
void measure_rates(std::vector<PrefillRate>& prefill, std::vector<DecodeRate>& decode, Backend& backend,
                   const Model& model, const RatesToMeasure& what);

/// Measures what prompt rows in a decode step cost.
RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped);

}  // namespace baton::inline v1
