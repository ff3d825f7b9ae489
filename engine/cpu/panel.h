// SPDX-License-Identifier: Apache-2.0
// The panel: the layout of every right-hand operand. A panel holds 32 columns (outputs of a weight, keys, or columns of
// a head) of `depth` elements each, depth-major: row c of a panel is element c of all 32 columns, one cache line in
// bf16. A product streams a panel from begin to end, with columns in vector lanes.
//
// Slots of a row. f32: column n is at n. bf16: columns n and n + 16 share a 32-bit word (low and high half), so a
// vector of words widens to two vectors of floats with one shift and one mask, for any vector width.
//
// Pairs: the other form of a bf16 panel, for instructions that multiply two elements of a column at once. A row holds
// elements 2 i and 2 i + 1 of all 32 columns; those of column n share word n. The even element is in the high half, as
// the instruction adds its product first (pairs-inl.h). An odd depth is filled up with zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/tensor/dtype.h"

namespace baton::cpu {

inline constexpr std::int64_t kPanel = 32;

/// Returns the index of column n, in [0, 32), within a row of a panel.
template <class Element>
constexpr std::int64_t slot_of(std::int64_t n);
template <>
constexpr std::int64_t slot_of<float>(std::int64_t n) {
  return n;
}
template <>
constexpr std::int64_t slot_of<std::uint16_t>(std::int64_t n) {
  return (n % 16) * 2 + n / 16;
}

constexpr std::int64_t pairs_of(std::int64_t depth) { return (depth + 1) / 2; }

/// Returns the index of element c of column n within a panel of pairs.
constexpr std::int64_t place_in_pairs(std::int64_t c, std::int64_t n) { return (c / 2 * kPanel + n) * 2 + 1 - c % 2; }

constexpr std::int64_t panels_of(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

template <class Element>
Element from_f32(float value);
template <>
inline float from_f32<float>(float value) {
  return value;
}
template <>
inline std::uint16_t from_f32<std::uint16_t>(float value) {
  return f32_to_bf16(value);
}

inline float to_f32(float value) { return value; }
inline float to_f32(std::uint16_t bits) { return bf16_to_f32(bits); }

/// Calls fn with a value of the element type that stores `dtype`: float or std::uint16_t (bf16 bits).
template <class Fn>
void with_element(DType dtype, const Fn& fn) {
  if (dtype == DType::f32) {
    fn(float{});
  } else {
    fn(std::uint16_t{});
  }
}

}  // namespace baton::cpu
