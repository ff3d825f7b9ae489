// SPDX-License-Identifier: Apache-2.0
// Keys are depth-major in their panels, so storing a run of rows is a transposition, here in blocks of 4 x 4 words. A
// word is one float, or the two bf16 of columns n and n + 16 (panel.h).
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/kv.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "engine/backend/checks.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/kv.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
