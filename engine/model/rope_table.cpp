// SPDX-License-Identifier: Apache-2.0
#include "engine/model/rope_table.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace baton {

RopeAngles RopeTable::range(std::size_t rope, std::int32_t begin, std::int32_t n) {
  reserve(begin + n);
  const auto half = static_cast<std::int64_t>(ropes_.distinct()[rope].inverse_frequencies().size());
  const TensorView both = memory_[rope].view(DType::f32, 2 * std::int64_t{positions_}, half);
  return {both.row_range(begin, begin + n), both.row_range(positions_ + begin, positions_ + begin + n)};
}

void RopeTable::reserve(std::int32_t positions) {
  if (positions <= positions_) return;
  constexpr std::int32_t kMinPositions = 1024;
  const std::int32_t grown = std::max({kMinPositions, positions, 2 * positions_});
  std::vector<std::int32_t> all(static_cast<std::size_t>(grown));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Buffer> memory;
  for (const Rope& rope : ropes_.distinct()) {
    const std::size_t half = all.size() * rope.inverse_frequencies().size();
    std::vector<float> angles(2 * half);
    rope.angles(std::span(angles).first(half), std::span(angles).subspan(half), all);
    memory.push_back(device_.allocate(angles.size() * sizeof(float)));
    device_.copy_to_device(memory.back().data(), std::as_bytes(std::span(angles)));
  }
  memory_ = std::move(memory);
  positions_ = grown;
}

}  // namespace baton
