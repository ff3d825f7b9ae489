#include "engine/cpu/kv.h"

#include "engine/cpu/checks.h"
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

void store_kv_row(const KvSlab& slab, const KvShape& shape, std::int32_t position, const float* k, const float* v,
                  const float* cos, const float* sin, std::int64_t half) {
  with_element(shape.dtype, [&]<class Element>(Element) {
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      const float* key = k + head * shape.head_dim;
      const float* value = v + head * shape.head_dim;
      float rotated[kMaxHeadDim];
      for (std::int64_t d = 0; d < shape.head_dim; ++d) rotated[d] = to_f32(from_f32<Element>(key[d]));
      rope_head(rotated, cos, sin, half);
      for_each_column<Element>(slab, shape, head, position, [&](std::int64_t d, Element& key_out, Element& value_out) {
        key_out = from_f32<Element>(rotated[d]);
        value_out = from_f32<Element>(value[d]);
      });
    }
  });
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
