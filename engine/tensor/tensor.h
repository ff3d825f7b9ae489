// SPDX-License-Identifier: Apache-2.0
// Element types and their conversions. Rounding to bf16 and f16 is to nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace baton {

enum class DType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

constexpr std::string_view name_of(DType type) {
  return type == DType::f32 ? "f32" : type == DType::bf16 ? "bf16" : "f16";
}

constexpr float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

constexpr std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);  // keep NaN a NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t bits);

// Views point at elements without owning them. Everything that the engine computes on is a matrix of rows (tokens) by
// columns (features); heads are groups of columns.
//
// Dimension letters, used in every shape comment of the project:
//   B sequences, T rows (new tokens), S cached tokens, H query heads, K kv heads, D head width,
//   C model width, F ffn width, V vocabulary, L layers.

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

// Buffer: the owner of a block of a backend's memory. Move-only; the destructor releases the memory to its owner.

/// Allocates the memory of buffers, and must outlive them. release() is called once per buffer, by its destructor.
class BufferOwner {
 public:
  virtual void release(void* data, std::size_t bytes) noexcept = 0;

 protected:
  ~BufferOwner() = default;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(BufferOwner* owner, void* data, std::size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) owner_->release(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

  /// Returns a view of the buffer's first rows * cols elements as a matrix. The buffer is not checked to be that large.
  TensorView view(DType dtype, std::int64_t rows, std::int64_t cols) const { return {data(), dtype, rows, cols, cols}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  BufferOwner* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Multiply-add with one rounding, on every platform: the C library of MinGW-w64 rounds twice in std::fma.

/// The same as fused(), in double precision without any function of the C library. A product of two floats is exact in
/// double; the sum with c is rounded to odd there, so that the rounding to float sees on which side of a tie it was
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
inline float fused_in_double(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);  // sum + error is exact (Knuth's TwoSum)
  if (error == 0 || !std::isfinite(sum)) return static_cast<float>(sum);
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if ((bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : static_cast<std::uint64_t>(-1);
  return static_cast<float>(std::bit_cast<double>(bits));
}

/// a * b + c, rounded once.
inline float fused(float a, float b, float c) {
#if defined(__MINGW32__) && !defined(__FMA__)
  return fused_in_double(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace baton
