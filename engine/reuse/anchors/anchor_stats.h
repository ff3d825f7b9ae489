// SPDX-License-Identifier: Apache-2.0
// The statistics of an anchor store, as plain data.
#pragma once

#include <cstdint>

namespace baton {

struct AnchorStoreStats {
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t pools = 0;
  std::int64_t anchors = 0;
  std::int64_t learned = 0;  // samples since the store was made
  std::int64_t pruned = 0;
};

}  // namespace baton
