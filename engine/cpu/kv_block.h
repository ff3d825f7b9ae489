// SPDX-License-Identifier: Apache-2.0
// A whole panel of 32 positions at once: what store_kv does for long runs of rows, and nothing else in memory than
// that.
#pragma once

#include <cstdint>

#include "engine/backend/operations.h"

namespace baton::cpu {

/// Rows [row, row + 32) of a call of store_kv, whose positions [position, position + 32) are one panel of the slab. The
/// same bits as 32 times store_kv_row.
void store_kv_panel(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k,
                    ConstTensorView v, const RopeAngles& angles, std::int64_t row);

}  // namespace baton::cpu
