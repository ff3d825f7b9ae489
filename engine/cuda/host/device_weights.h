// SPDX-License-Identifier: Apache-2.0
// Weights on the device: matrices with padded rows, and vectors of floats that are identified by their host address.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/quantized/quantized.h"

namespace baton::cuda {

/// A weight [N, C], row-major, rows `stride` elements apart: padded so that every row is aligned to 16 bytes.
struct DeviceMatrix final : Matrix {
  DeviceMatrix(Runtime& runtime, std::int64_t rows, std::int64_t cols, DType dtype);
  ~DeviceMatrix() override { runtime_.release(data); }
  /// Uploads the rows of `part`, in host memory, to rows [first, first + part.rows), in pieces of bounded size.
  void load(std::int64_t first, const ConstTensorView& part, Stream stream, Staging& staging, DeviceScratch& scratch);
  ConstTensorView view() const { return BasicView<const std::byte>{data, dtype, rows, cols, stride}; }

  std::byte* data = nullptr;
  std::int64_t stride;

 private:
  Runtime& runtime_;
};

/// Returns the matrix behind the interface. Throws std::invalid_argument when it belongs to another backend.
const DeviceMatrix& device(const Matrix& matrix);

/// Copies on the device of vectors of floats in host memory (weights of norms, biases). A vector passed to keep() is
/// identified by its address alone. Any other vector is also compared by content, because another vector may have taken
/// its address.
class KeptVectors final : public BufferOwner {
 public:
  KeptVectors(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Uploads the values; put() identifies them by their address until the returned buffer is destroyed.
  Buffer keep(std::span<const float> values);
  void release(void* data, std::size_t bytes) noexcept override;

  /// Returns the values' address on the device, after an upload where needed; null for no values.
  const float* put(std::span<const float> values);

 private:
  Runtime& runtime_;
  Staging& staging_;
  std::unordered_map<const float*, std::span<const float>> constant_;  // the copies on the device of kept vectors
  std::unordered_map<const float*, std::unique_ptr<KeptArrays>> vectors_;
};

// Weights on the device that keep the codes of their block types, and the operations over them.

/// A weight [N, C] of checked, quantised parts, which may differ in type.
class DeviceBlocks final : public Matrix {
 public:
  /// `threads`: at most as many bring the blocks into the device's order.
  DeviceBlocks(Runtime& runtime, Staging& staging, std::span<const BlockRows> parts, int threads);
  std::span<const QuantizedPart> parts() const { return parts_; }

 private:
  DeviceScratch memory_;  // reserved once
  std::vector<QuantizedPart> parts_;
};

/// Scratch memory for activations and for unpacked weights. Arguments are checked. Threads: one caller at a time.
class QuantizedOperations {
 public:
  QuantizedOperations(Runtime& runtime, Replays& replays)
      : runtime_(runtime),
        replays_(replays),
        inputs_(runtime),
        sums_(runtime),
        half_sums_(runtime),
        unpacked_(runtime) {}

  /// Few rows: products of the codes, with the same bits in any batch. From unpacked_rows_ rows on the weight is
  /// rounded to bf16, a piece at a time, and the library multiplies
  /// (docs/decisions/cuda.md). `bias`: on the device, or null.
  void matmul(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w, const float* bias);
  /// `ids`: on the device.
  static void embed(Stream stream, TensorView out, const DeviceBlocks& table, const std::int32_t* ids);

 private:
  void multiply_unpacked(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w, const float* bias);

  Runtime& runtime_;
  Replays& replays_;
  DeviceScratch inputs_, sums_, half_sums_, unpacked_;
  const std::int64_t unpacked_rows_ = number_in("BATON_CUDA_UNPACKED_ROWS", 96);
  const std::int64_t unpacked_mib_ =  // of a weight, at once
      std::max(std::int64_t{1}, number_in("BATON_CUDA_UNPACKED_MIB", 256));
};

}  // namespace baton::cuda
