// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/kv.h"

#include <cmath>
#include <cstring>

#include "engine/backend/checks.h"
#include "engine/cpu/elementwise.h"

namespace baton::cpu {
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
                  const float* cos, const float* sin, std::int64_t half) {
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
      rope_head(rotated, cos, sin, half);
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

}  // namespace baton::cpu
