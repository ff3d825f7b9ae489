// SPDX-License-Identifier: Apache-2.0
// The measurements of baton bench other than the methods: prefill and decode of the bare model, and prompt rows in its
// decode steps.
#pragma once

#include <baton/bench.h>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

/// Measures what prompt rows in a decode step cost.
RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped);

/// Fills in prefill, decode and their fractions of the limits, which are in the result.
void measure_rates(BenchResult& result, Backend& backend, const Model& model, const BenchOptions& options);

}  // namespace baton::inline v1
