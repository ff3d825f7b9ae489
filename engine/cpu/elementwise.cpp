// SPDX-License-Identifier: Apache-2.0
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cpu/elementwise.h"
#include "engine/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

void add(float* x, const float* delta, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i)
                         HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, delta + i)), d, x + i); });
}

void add_scaled(float* x, const std::uint16_t* delta, float scale, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<hwy::bfloat16_t, decltype(d)> half;
    const auto wide = hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::bfloat16_t*>(delta) + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, scale), wide, hn::LoadU(d, x + i)), d, x + i);
  });
}

void add_weighted(float* x, const float* in, float weight, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, weight), hn::LoadU(d, in + i), hn::LoadU(d, x + i)), d, x + i);
  });
}

void silu_mul(float* out, const float* gate, const float* up, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + i);
    const auto exponent = hn::Min(hn::Neg(g), hn::Set(d, 88.0f));  // beyond 88 exp overflows; silu is -0 there anyway
    const auto silu = hn::Div(g, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, exponent)));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, out + i);
  });
}

/// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which has no cancellation.
void gelu_mul(float* out, const float* gate, const float* up, std::int64_t n) {
  constexpr float kSlope = -1.5957691216f, kCubic = -0.0713548162726f;  // -2 sqrt(2 / pi), and that times 0.044715
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + i);
    const auto slope = hn::MulAdd(hn::Mul(g, g), hn::Set(d, kCubic), hn::Set(d, kSlope));
    const auto exponent = hn::Min(hn::Mul(g, slope), hn::Set(d, 88.0f));  // as in silu_mul
    const auto gelu = hn::Div(g, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, exponent)));
    hn::StoreU(hn::Mul(gelu, hn::LoadU(d, up + i)), d, out + i);
  });
}

void scale(float* x, float factor, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i)
                         HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i); });
}

void soft_cap(float* x, float cap, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto share = hn::Div(hn::LoadU(d, x + i), hn::Set(d, cap));
    hn::StoreU(hn::Mul(hn::Set(d, cap), hn::Tanh(d, share)), d, x + i);
  });
}

void rope(float* x, const float* cos, const float* sin, std::int64_t half) {
  for_each_vector(half, [&](auto d, std::int64_t j) HWY_ATTR {
    const auto c = hn::LoadU(d, cos + j);
    const auto s = hn::LoadU(d, sin + j);
    const auto a = hn::LoadU(d, x + j);
    const auto b = hn::LoadU(d, x + half + j);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + j);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + j);
  });
}

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

HWY_EXPORT(add);
HWY_EXPORT(add_scaled);
HWY_EXPORT(add_weighted);
HWY_EXPORT(silu_mul);
HWY_EXPORT(gelu_mul);
HWY_EXPORT(scale);
HWY_EXPORT(soft_cap);
HWY_EXPORT(rope);

void add_row(float* x, const float* delta, std::int64_t n) { HWY_DYNAMIC_DISPATCH(add)(x, delta, n); }

void add_scaled_row(float* x, const std::uint16_t* delta, float scale, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(x, delta, scale, n);
}

void add_weighted_row(float* x, const float* in, float weight, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_weighted)(x, in, weight, n);
}

void silu_mul_row(float* out, const float* gate, const float* up, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(silu_mul)(out, gate, up, n);
}

void gelu_mul_row(float* out, const float* gate, const float* up, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_mul)(out, gate, up, n);
}

void scale_row(float* x, float factor, std::int64_t n) { HWY_DYNAMIC_DISPATCH(scale)(x, factor, n); }

void soft_cap_row(float* x, float cap, std::int64_t n) { HWY_DYNAMIC_DISPATCH(soft_cap)(x, cap, n); }

void rope_head(float* x, const float* cos, const float* sin, std::int64_t half) {
  HWY_DYNAMIC_DISPATCH(rope)(x, cos, sin, half);
}

void copy_row(TensorView out, std::int64_t to, ConstTensorView in, std::int64_t from) {
  if (out.dtype == in.dtype) {
    std::memcpy(out.row_range(to, to + 1).data, in.row_range(from, from + 1).data, in.cols * size_of(in.dtype));
  } else if (out.dtype == DType::f32) {
    std::transform(in.bf16(from), in.bf16(from) + in.cols, out.f32(to), bf16_to_f32);
  } else {
    std::transform(in.f32(from), in.f32(from) + in.cols, out.bf16(to), f32_to_bf16);
  }
}

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
