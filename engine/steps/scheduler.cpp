// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/scheduler.h"

#include <algorithm>

namespace baton {

std::vector<std::int32_t> plan_step(std::span<const Pending> sequences, std::int32_t max_rows) {
  std::vector<std::int32_t> rows(sequences.size(), 0);
  std::int32_t left = max_rows;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!sequences[i].decoding) continue;
    rows[i] = sequences[i].tokens;
    left -= rows[i];
  }
  left = std::max(left, 1);  // a step full of decode rows still advances the oldest prompt
  for (std::size_t i = 0; i < sequences.size() && left > 0; ++i) {
    if (sequences[i].decoding) continue;
    rows[i] = std::min(sequences[i].tokens, left);
    left -= rows[i];
  }
  return rows;
}

}  // namespace baton
