// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

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

double max_reuse(const ReuseOptions& options, std::int32_t layers) {
  using Score = SelectionOptions::Score;
  const SelectionOptions& selection = options.selection;
  const bool known = selection.score == Score::author || selection.score == Score::entropy;
  std::int32_t all = 0;
  if (options.method->id == MethodId::cacheblend) all = 1;
  const bool rectifies = options.method->id == MethodId::rectify || options.method->id == MethodId::verified;
  if (rectifies && !known) all = options.range.detect - options.range.start;
  return 1.0 - static_cast<double>(all) / layers;
}

PromptSchedule make_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const Method& method = *options.method;
  const LayerRange range = options.range;
  if (method.layers == Method::Layers::detection && takes_segments(options) && !range.valid(input.layers)) {
    throw std::invalid_argument(fmt::format("{}: expected layers start < detect < end < {}, found {}, {}, {}",
                                            method.name, input.layers, range.start, range.detect, range.end));
  }
  if (method.layers == Method::Layers::group && !range.is_group(input.layers)) {
    throw std::invalid_argument(fmt::format("{}: expected a group of layers start < end < {}, found {} to {}",
                                            method.name, input.layers, range.start, range.end));
  }
  return method.schedule(options, input);
}

}  // namespace baton
