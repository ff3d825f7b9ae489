// SPDX-License-Identifier: Apache-2.0
// Views point at elements without owning them. Everything that the engine computes on is a matrix of rows (tokens) by
// columns (features); heads are groups of columns.
//
// Dimension letters, used in every shape comment of the project:
//   B sequences, T rows (new tokens), S cached tokens, H query heads, K kv heads, D head width,
//   C model width, F ffn width, V vocabulary, L layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "engine/tensor/dtype.h"

namespace baton {

/// A row-major matrix in memory that the view does not own. `stride` is the distance between rows, in elements.
template <class Byte>
struct BasicView {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  /// Rows [begin, end).
  BasicView row_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin * stride * static_cast<std::int64_t>(size_of(dtype)), dtype, end - begin, cols, stride};
  }
  /// Columns [begin, end) of every row.
  BasicView col_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin * static_cast<std::int64_t>(size_of(dtype)), dtype, rows, end - begin, stride};
  }
  auto f32(std::int64_t row = 0) const {
    using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
    return reinterpret_cast<Float*>(data) + row * stride;
  }
  auto bf16(std::int64_t row = 0) const {
    using Bits = std::conditional_t<std::is_const_v<Byte>, const std::uint16_t, std::uint16_t>;
    return reinterpret_cast<Bits*>(data) + row * stride;
  }
};

using TensorView = BasicView<std::byte>;

struct ConstTensorView : BasicView<const std::byte> {
  ConstTensorView() = default;
  ConstTensorView(BasicView<const std::byte> view) : BasicView(view) {}  // NOLINT: a view converts freely
  ConstTensorView(const TensorView& view)                                // NOLINT: so does a mutable one
      : BasicView{view.data, view.dtype, view.rows, view.cols, view.stride} {}
};

/// Views over plain floats, e.g. of a std::vector.
inline TensorView view_of(float* data, std::int64_t rows, std::int64_t cols) {
  return {reinterpret_cast<std::byte*>(data), DType::f32, rows, cols, cols};
}
inline ConstTensorView view_of(const float* data, std::int64_t rows, std::int64_t cols) {
  return BasicView<const std::byte>{reinterpret_cast<const std::byte*>(data), DType::f32, rows, cols, cols};
}

}  // namespace baton
