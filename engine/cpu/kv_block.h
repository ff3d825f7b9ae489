// SPDX-License-Identifier: Apache-2.0
// store_kv for a whole panel of 32 positions at once, which long runs of rows use. It writes the same memory as
// store_kv_row.
#pragma once

#include <cstdint>

#include "engine/backend/operations.h"

namespace baton::cpu {

/// Stores rows [row, row + 32) of a call of store_kv, whose positions [position, position + 32) are one panel of the
/// slab, with the same bits as 32 calls of store_kv_row.
void store_kv_panel(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k,
                    ConstTensorView v, const RopeAngles& angles, std::int64_t row);

}  // namespace baton::cpu
