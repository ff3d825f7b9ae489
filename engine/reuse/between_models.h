// SPDX-License-Identifier: Apache-2.0
// What two models must share for one to read the other's KV (method droidspeak).
#pragma once

#include <string>

#include "engine/model/model.h"

namespace baton {

/// Why `reader` cannot take KV that `author` made: the first difference in vocabulary or shapes, or empty. Weights may
/// differ, and so may what is added to positions: KV moves before RoPE.
std::string kv_difference(const Model& author, const Model& reader);

}  // namespace baton
