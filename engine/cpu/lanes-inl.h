// SPDX-License-Identifier: Apache-2.0
// 16 virtual lanes, whatever the vector width. Sums over a row keep one partial sum per virtual lane and fold them in a
// fixed order, so that the result does not depend on the instruction set.
#if defined(BATON_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_LANES_INL_H_
#undef BATON_CPU_LANES_INL_H_
#else
#define BATON_CPU_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kLanes = 16;

/// Returns the sum of 16 floats: halves are added, then quarters, and so on.
HWY_INLINE float fold_lanes(const float* lanes) {
  float sum[kLanes / 2];
  for (std::size_t i = 0; i < 8; ++i) sum[i] = lanes[i] + lanes[i + 8];
  for (std::size_t i = 0; i < 4; ++i) sum[i] = sum[i] + sum[i + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/// Applies fn(tag, i) to elements [i, i + lanes of tag) until all n are done: whole vectors, then single elements with
/// the same instructions. For work in which an element does not depend on its neighbours.
template <class Fn>
HWY_INLINE void for_each_vector(std::int64_t n, const Fn& fn) {
  const hn::CappedTag<float, kLanes> wide;
  const hn::CappedTag<float, 1> single;
  const auto width = static_cast<std::int64_t>(hn::Lanes(wide));
  std::int64_t i = 0;
  for (; i + width <= n; i += width) fn(wide, i);
  for (; i < n; ++i) fn(single, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
