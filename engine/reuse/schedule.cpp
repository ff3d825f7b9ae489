// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/schedule.h"

#include <algorithm>

namespace baton {
SparseLayers sparse_layers_of(const PromptSchedule& schedule, std::int32_t layers) {
  if (!schedule.detections.empty()) {
    const Detection& detection = schedule.detections.front();
    return {detection.layer + 1, detection.leave};
  }
  SparseLayers sparse{layers, 0};
  for (const ScheduledRow& row : schedule.rows) {
    if (row.path.enter == 0 && row.path.leave == layers) continue;
    sparse.begin = std::min(sparse.begin, row.path.enter);
    sparse.end = std::max(sparse.end, row.path.leave);
  }
  if (sparse.end == 0) sparse.end = layers;
  return sparse;
}

}  // namespace baton
