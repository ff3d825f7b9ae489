// SPDX-License-Identifier: Apache-2.0
// Weights on the device that keep the codes of their block types, and the operations over them.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cuda/host/environment.h"
#include "engine/cuda/host/replays.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/quantized/quantized_layout.h"

namespace baton::cuda {

/// A weight [N, C] of checked parts with codes (code_format.h), which may differ in type.
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
      : runtime_(runtime), replays_(replays), inputs_(runtime), sums_(runtime), unpacked_(runtime) {}

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
  DeviceScratch inputs_, sums_, unpacked_;
  const std::int64_t unpacked_rows_ = number_in("BATON_CUDA_UNPACKED_ROWS", 96);
  const std::int64_t unpacked_mib_ =  // of a weight, at once
      std::max(std::int64_t{1}, number_in("BATON_CUDA_UNPACKED_MIB", 256));
};

}  // namespace baton::cuda
