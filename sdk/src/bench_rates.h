// What baton bench measures beside the methods: the machine's limits, and prefill and decode of the bare model.
#pragma once

#include "sdk/src/internal.h"

namespace baton::inline v1 {

struct MachineLimits {
  double gemm_gflops = 0;
  double bandwidth_gbs = 0;
};

/// Our own product of two large matrices, and a read of memory on all threads of the backend.
MachineLimits measure_limits(Backend& backend, DType dtype);

/// Fills in prefill, decode and their shares. `quick`: once each, not the median of several.
RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped);
void measure_rates(BenchResult& result, Backend& backend, const Model& model, bool quick, const BenchOptions& options);

}  // namespace baton::inline v1
