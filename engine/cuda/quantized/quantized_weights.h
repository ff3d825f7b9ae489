// SPDX-License-Identifier: Apache-2.0
// Weights on the device that keep the codes of their block types, and the operations over them.
#pragma once

#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/quantized/quantized_layout.h"

namespace baton::cuda {

/// A weight [N, C] of checked parts with codes (code_format.h), which may differ in type.
class DeviceBlocks final : public Matrix {
 public:
  DeviceBlocks(Runtime& runtime, Staging& staging, std::span<const BlockRows> parts);
  std::span<const QuantizedPart> parts() const { return parts_; }

 private:
  DeviceScratch memory_;  // reserved once
  std::vector<QuantizedPart> parts_;
};

/// Scratch memory for activations. Arguments are checked. Threads: one caller at a time.
class QuantizedOperations {
 public:
  explicit QuantizedOperations(Runtime& runtime) : runtime_(runtime), inputs_(runtime), sums_(runtime) {}

  /// `bias`: on the device, or null.
  void matmul(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w, const float* bias);
  /// `ids`: on the device.
  static void embed(Stream stream, TensorView out, const DeviceBlocks& table, const std::int32_t* ids);

 private:
  Runtime& runtime_;
  DeviceScratch inputs_, sums_;
};

}  // namespace baton::cuda
