// SPDX-License-Identifier: Apache-2.0
// Weights on the device: matrices with padded rows, and vectors of floats that are found by their host address.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"

namespace baton::cuda {

/// A weight [N, C] as stored, row-major, rows `stride` elements apart: padded so that every row begins at 16 bytes.
struct DeviceMatrix final : Matrix {
  DeviceMatrix(Runtime& runtime, std::int64_t rows, std::int64_t cols, DType dtype);
  ~DeviceMatrix() override { runtime_.release(data); }
  ConstTensorView view() const { return BasicView<const std::byte>{data, dtype, rows, cols, stride}; }

  std::byte* data = nullptr;
  std::int64_t stride;

 private:
  Runtime& runtime_;
};

/// Throws std::invalid_argument for a matrix of another backend.
const DeviceMatrix& device(const Matrix& matrix);

/// Vectors of floats in host memory (weights of norms, biases), with their copies on the device. A vector that keep()
/// was given is identified by its address; any other is compared by content, too, so that another vector at the same
/// address is noticed.
class KeptVectors final : public BufferOwner {
 public:
  KeptVectors(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Copies the values; they are found by their address until the buffer is released.
  Buffer keep(std::span<const float> values);
  void release(void* data, std::size_t bytes) noexcept override;

  /// The values' address on the device, after a copy where they are not there yet; null for none.
  const float* put(std::span<const float> values);

 private:
  Runtime& runtime_;
  Staging& staging_;
  std::unordered_map<const float*, std::span<const float>> constant_;  // where it is on the device
  std::unordered_map<const float*, std::unique_ptr<KeptArrays>> vectors_;
};

}  // namespace baton::cuda
