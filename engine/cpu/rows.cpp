// SPDX-License-Identifier: Apache-2.0
// Keys are depth-major in their panels, so storing a run of rows is a transposition, here in blocks of 4 x 4 words. A
// word is one float, or the two bf16 of columns n and n + 16 (matmul.h).
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "engine/backend/backend.h"
#include "engine/cpu/rows.h"
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

void clamped_silu_mul(float* out, const float* gate, const float* up, const ClampedGate& how, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto limit = hn::Set(d, how.limit), one = hn::Set(d, 1.0f);
    const auto g = hn::Min(hn::LoadU(d, gate + i), limit);
    const auto u = hn::Max(hn::Min(hn::LoadU(d, up + i), limit), hn::Neg(limit));
    const auto exponent = hn::Min(hn::Mul(g, hn::Set(d, -how.slope)), hn::Set(d, 88.0f));  // as in silu_mul
    const auto silu = hn::Div(g, hn::Add(one, hn::Exp(d, exponent)));
    hn::StoreU(hn::Mul(hn::Add(u, one), silu), d, out + i);
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

using Words = hn::CappedTag<std::uint32_t, 16>;
using Word = hn::CappedTag<std::uint32_t, 1>;

/// Calls fn(tag, i) for words [i, i + lanes of tag) until all n are done.
template <class Fn>
HWY_INLINE void for_words(std::int64_t n, const Fn& fn) {
  const auto width = static_cast<std::int64_t>(hn::Lanes(Words()));
  std::int64_t i = 0;
  for (; i + width <= n; i += width) fn(Words(), i);
  for (; i < n; ++i) fn(Word(), i);
}

/// f32_to_bf16 of the bits of floats: to nearest, ties to even; a NaN stays a NaN.
template <class Tag, class Vec>
HWY_INLINE Vec rounded(Tag tag, Vec bits) {
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(tag, 1u));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(tag, 0x7fffu))));
  const auto nan = hn::Gt(hn::And(bits, hn::Set(tag, 0x7fffffffu)), hn::Set(tag, 0x7f800000u));
  return hn::IfThenElse(nan, hn::Or(high, hn::Set(tag, 0x40u)), nearest);
}

/// n elements of a row, as words with one element each: bf16 in the low half, or the bits of a float.
template <class Element, class Tag>
HWY_INLINE auto load_words(Tag tag, const ConstTensorView& view, std::int64_t row, std::int64_t i) {
  if (view.dtype == DType::f32) {
    const auto bits = hn::LoadU(tag, reinterpret_cast<const std::uint32_t*>(view.f32(row)) + i);
    if constexpr (std::is_same_v<Element, float>) {
      return bits;
    } else {
      return rounded(tag, bits);
    }
  }
  if constexpr (std::is_same_v<Element, float>) {
    return hn::Zero(tag);  // store_kv takes bf16 only for a cache of bf16
  } else {
    return hn::PromoteTo(tag, hn::LoadU(hn::Rebind<std::uint16_t, Tag>(), view.bf16(row) + i));
  }
}

/// out[c * out_stride + r] = in[r * in_stride + c] for r below `rows`, a multiple of 4.
void transpose(std::uint32_t* HWY_RESTRICT out, std::int64_t out_stride, const std::uint32_t* HWY_RESTRICT in,
               std::int64_t in_stride, std::int64_t rows, std::int64_t cols) {
  std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<std::uint32_t, 4> four;
  const hn::Repartition<std::uint64_t, decltype(four)> two;
  const auto pairs = [&](auto vec) HWY_ATTR { return hn::BitCast(two, vec); };
  const auto words = [&](auto vec) HWY_ATTR { return hn::BitCast(four, vec); };
  for (; c + 4 <= cols; c += 4) {
    for (std::int64_t r = 0; r < rows; r += 4) {
      const std::uint32_t* from = in + r * in_stride + c;
      const auto a = hn::LoadU(four, from), b = hn::LoadU(four, from + in_stride);
      const auto d = hn::LoadU(four, from + 2 * in_stride), e = hn::LoadU(four, from + 3 * in_stride);
      const auto ab_low = pairs(hn::InterleaveLower(four, a, b)), ab_high = pairs(hn::InterleaveUpper(four, a, b));
      const auto de_low = pairs(hn::InterleaveLower(four, d, e)), de_high = pairs(hn::InterleaveUpper(four, d, e));
      std::uint32_t* to = out + c * out_stride + r;
      hn::StoreU(words(hn::InterleaveLower(two, ab_low, de_low)), four, to);
      hn::StoreU(words(hn::InterleaveUpper(two, ab_low, de_low)), four, to + out_stride);
      hn::StoreU(words(hn::InterleaveLower(two, ab_high, de_high)), four, to + 2 * out_stride);
      hn::StoreU(words(hn::InterleaveUpper(two, ab_high, de_high)), four, to + 3 * out_stride);
    }
  }
#endif
  for (; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

template <class Element>
struct KeyPanel {
  static constexpr bool kWide = std::is_same_v<Element, float>;
  static constexpr std::int64_t kWords = kWide ? kPanel : kPanel / 2;  // of a row of a panel

  const KvSlab& slab;
  const KvShape& shape;
  std::int32_t position;
  ConstTensorView k, v;
  const RopeAngles& angles;
  std::int64_t row;

  void keys(std::int64_t head) const {
    const std::int64_t width = shape.head_dim, first = head * width;
    float rotated[kMaxHeadDim];
    auto* bits = reinterpret_cast<std::uint32_t*>(rotated);
    std::uint32_t words[kWords * kMaxHeadDim];  // [position, D]; the second half of bf16 rows goes into the high halves
    for (std::int64_t n = 0; n < kPanel; ++n) {
      Element* raw = slab.raw_keys == nullptr
                         ? nullptr
                         : reinterpret_cast<Element*>(slab.raw_keys) + (position + n) * shape.kv_heads * width + first;
      for_words(width, [&](auto tag, std::int64_t i) HWY_ATTR {
        const auto key = load_words<Element>(tag, k, row + n, first + i);
        if constexpr (kWide) {
          hn::StoreU(key, tag, bits + i);
          if (raw != nullptr) hn::StoreU(key, tag, reinterpret_cast<std::uint32_t*>(raw) + i);
        } else {
          hn::StoreU(hn::ShiftLeft<16>(key), tag, bits + i);
          const hn::Rebind<std::uint16_t, decltype(tag)> half;
          if (raw != nullptr) hn::StoreU(hn::TruncateTo(half, key), half, raw + i);
        }
      });
      rope_head(rotated, angles.cos.f32(row + n), angles.sin.f32(row + n), angles.cos.cols);
      std::uint32_t* out = words + n % kWords * width;
      for_words(width, [&](auto tag, std::int64_t i) HWY_ATTR {
        auto key = hn::LoadU(tag, bits + i);
        if constexpr (!kWide) {
          key = rounded(tag, key);
          if (n >= kWords) key = hn::Or(hn::LoadU(tag, out + i), hn::ShiftLeft<16>(key));
        }
        hn::StoreU(key, tag, out + i);
      });
    }
    auto* panel = reinterpret_cast<std::uint32_t*>(key_panels<Element>(slab, shape, head) + position * width);
    transpose(panel, kWords, words, width, kWords, width);
  }

  void values(std::int64_t head) const {
    const std::int64_t width = shape.head_dim, first = head * width;
    auto* panels = reinterpret_cast<std::uint32_t*>(value_panels<Element>(slab, shape, head) + position * kPanel);
    for (std::int64_t d = 0; d < width; d += kPanel) {
      std::uint32_t* out = panels + d / kPanel * slab.capacity * kWords;
      const std::int64_t columns = std::min(kPanel, width - d);
      const std::int64_t low = std::min(columns, kWords);
      for (std::int64_t n = 0; n < kPanel; ++n, out += kWords) {
        for_words(low, [&](auto tag, std::int64_t i)
                           HWY_ATTR { hn::StoreU(load_words<Element>(tag, v, row + n, first + d + i), tag, out + i); });
        for_words(columns - low, [&](auto tag, std::int64_t i) HWY_ATTR {
          const auto high = hn::ShiftLeft<16>(load_words<Element>(tag, v, row + n, first + d + low + i));
          hn::StoreU(hn::Or(hn::LoadU(tag, out + i), high), tag, out + i);
        });
      }
    }
  }
};

void store_panel(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k, ConstTensorView v,
                 const RopeAngles& angles, std::int64_t row) {
  with_element(shape.dtype, [&]<class Element>(Element) HWY_ATTR {
    const KeyPanel<Element> panel{slab, shape, position, k, v, angles, row};
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      panel.keys(head);
      panel.values(head);
    }
  });
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
HWY_EXPORT(clamped_silu_mul);
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

void clamped_silu_mul_row(float* out, const float* gate, const float* up, const ClampedGate& how, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(clamped_silu_mul)(out, gate, up, how, n);
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

HWY_EXPORT(store_panel);

namespace {

/// Calls fn(d, key element, value element) for every column d of a head at one position.
template <class Element, class Fn>
void for_each_column(const KvSlab& slab, const KvShape& shape, std::int64_t head, std::int64_t position, const Fn& fn) {
  const std::int64_t width = shape.head_dim;
  Element* keys =
      key_panels<Element>(slab, shape, head) + position / kPanel * width * kPanel + slot_of<Element>(position % kPanel);
  Element* values = value_panels<Element>(slab, shape, head) + position * kPanel;
  for (std::int64_t d = 0; d < width; ++d) {
    fn(d, keys[d * kPanel], values[d / kPanel * slab.capacity * kPanel + slot_of<Element>(d % kPanel)]);
  }
}

}  // namespace

void store_kv_row(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k, ConstTensorView v,
                  const RopeAngles& angles, std::int64_t row) {
  with_element(shape.dtype, [&]<class Element>(Element) {
    const std::int64_t cols = std::int64_t{shape.kv_heads} * shape.head_dim;
    Element* raw = slab.raw_keys == nullptr ? nullptr : reinterpret_cast<Element*>(slab.raw_keys) + position * cols;
    const auto element = [](const ConstTensorView& view, std::int64_t i) {
      if (view.dtype == DType::f32) return from_f32<Element>(view.f32()[i]);
      return reinterpret_cast<const Element*>(view.data)[i];
    };
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      const std::int64_t first = head * shape.head_dim;
      float rotated[kMaxHeadDim];
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const Element key = element(k, first + d);
        if (raw != nullptr) raw[first + d] = key;
        rotated[d] = to_f32(key);
      }
      rope_head(rotated, angles.cos.f32(row), angles.sin.f32(row), angles.cos.cols);
      for_each_column<Element>(slab, shape, head, position, [&](std::int64_t d, Element& key_out, Element& value_out) {
        key_out = from_f32<Element>(rotated[d]);
        value_out = element(v, first + d);
      });
    }
  });
}

void save_kv_row(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t position) {
  with_element(shape.dtype, [&]<class Element>(Element) {
    const std::int64_t cols = std::int64_t{shape.kv_heads} * shape.head_dim;
    std::memcpy(raw_k.data, slab.raw_keys + position * cols * sizeof(Element), cols * sizeof(Element));
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      Element* out = reinterpret_cast<Element*>(v.data) + head * shape.head_dim;
      for_each_column<Element>(slab, shape, head, position,
                               [&](std::int64_t d, const Element&, const Element& value) { out[d] = value; });
    }
  });
}

float value_deviation_row(const KvSlab& slab, const KvShape& shape, std::int32_t position, const float* v,
                          ValueMeasure measure) {
  double cosines = 0, squares = 0;
  with_element(shape.dtype, [&]<class Element>(Element) {
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      double dot = 0, fresh = 0, cached = 0;
      for_each_column<Element>(slab, shape, head, position, [&](std::int64_t d, const Element&, const Element& value) {
        const double a = to_f32(from_f32<Element>(v[head * shape.head_dim + d]));
        const double b = to_f32(value);
        dot += a * b;
        fresh += a * a;
        cached += b * b;
        squares += (a - b) * (a - b);
      });
      const double norms = std::sqrt(fresh * cached);  // for equal values exactly their dot product
      cosines += norms > 0 ? dot / norms : (fresh == cached ? 1.0 : 0.0);
    }
  });
  return static_cast<float>(measure == ValueMeasure::squared ? squares : 1.0 - cosines / shape.kv_heads);
}

void load_kv_row(float* k, float* v, const KvSlab& slab, const KvShape& shape, std::int32_t position) {
  with_element(shape.dtype, [&]<class Element>(Element) {
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      for_each_column<Element>(slab, shape, head, position,
                               [&](std::int64_t d, const Element& key, const Element& value) {
                                 k[head * shape.head_dim + d] = to_f32(key);
                                 v[head * shape.head_dim + d] = to_f32(value);
                               });
    }
  });
}

void store_kv_panel(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k,
                    ConstTensorView v, const RopeAngles& angles, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(store_panel)(slab, shape, position, k, v, angles, row);
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
