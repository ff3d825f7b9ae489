// SPDX-License-Identifier: Apache-2.0
// What baton bench measures beside the methods: prefill and decode of the bare model, and its decode steps' spare rows.
#pragma once

#include <baton/bench.h>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

/// What rows of a prompt that ride along in a decode step cost.
RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped);

/// Fills in prefill, decode and their shares of the limits, which are in the result.
void measure_rates(BenchResult& result, Backend& backend, const Model& model, const BenchOptions& options);

}  // namespace baton::inline v1
