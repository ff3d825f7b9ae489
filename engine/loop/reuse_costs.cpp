// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/reuse_costs.h"

#include <numeric>

namespace baton {
namespace {

// Only steps of many rows show the time per row; a step of few rows takes as long as reading the weights.
constexpr double kMany = 128.0;

double mixed(double known, double measured) {
  constexpr double kNewest = 0.2;
  return known > 0.0 ? (1.0 - kNewest) * known + kNewest * measured : measured;
}

}  // namespace

void ReuseCosts::on_step(std::span<const RowPath> paths, const StepTimes& times) {
  std::int64_t computed = 0;
  for (const RowPath& path : paths) computed += path.computed();
  if (computed == 0) return;
  const double all = std::accumulate(times.layer.begin(), times.layer.end(), times.detect + times.other);
  const double rows = static_cast<double>(computed) / static_cast<double>(times.layer.size());
  const double measured = all / rows;
  if (measured < row_ms_) row_ms_ = measured;
  if (rows >= kMany || row_ms_ == 0.0) row_ms_ = mixed(row_ms_, measured);
}

}  // namespace baton
