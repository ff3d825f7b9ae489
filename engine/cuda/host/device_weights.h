// SPDX-License-Identifier: Apache-2.0
// Weights on the device: matrices with padded rows, and vectors of floats that are identified by their host address.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"

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

}  // namespace baton::cuda
