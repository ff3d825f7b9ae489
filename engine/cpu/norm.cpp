// SPDX-License-Identifier: Apache-2.0
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "engine/cpu/lanes-inl.h"

#include <cmath>

#include "engine/cpu/norm.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

float sum_of_squares(const float* x, std::int64_t n) {
  const hn::CappedTag<float, kLanes> f;
  HWY_ALIGN float sums[kLanes] = {};
  const auto add_block = [&](const float* block) HWY_ATTR {
    for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(f)) {
      const auto v = hn::LoadU(f, block + lane);
      hn::Store(hn::MulAdd(v, v, hn::Load(f, sums + lane)), f, sums + lane);
    }
  };
  const auto block = static_cast<std::int64_t>(kLanes);
  std::int64_t i = 0;
  for (; i + block <= n; i += block) add_block(x + i);
  if (i < n) {
    float rest[kLanes] = {};
    std::copy(x + i, x + n, rest);
    add_block(rest);
  }
  return fold_lanes(sums);
}

void norm_row(float* out, const float* x, const float* weight, std::int64_t n, float eps) {
  const float scale = 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), hn::LoadU(d, weight + i)), d, out + i);
  });
}

void add_norm_row(float* out, float* x, const float* delta, const float* weight, std::int64_t n, float eps) {
  for_each_vector(n, [&](auto d, std::int64_t i)
                         HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, delta + i)), d, x + i); });
  norm_row(out, x, weight, n, eps);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {

HWY_EXPORT(norm_row);
HWY_EXPORT(add_norm_row);

void rms_norm_row(float* out, const float* x, const float* weight, std::int64_t n, float eps) {
  HWY_DYNAMIC_DISPATCH(norm_row)(out, x, weight, n, eps);
}

void add_rms_norm_row(float* out, float* x, const float* delta, const float* weight, std::int64_t n, float eps) {
  HWY_DYNAMIC_DISPATCH(add_norm_row)(out, x, delta, weight, n, eps);
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
