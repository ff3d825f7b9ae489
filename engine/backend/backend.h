// SPDX-License-Identifier: Apache-2.0
// Backend: a device and the operations over its memory. The CPU and CUDA implement it (docs/architecture.md, "A new
// backend"); engine/backend/make_backend.h is the only place that knows both.
#pragma once

#include "engine/backend/device.h"
#include "engine/backend/operations.h"

namespace baton {

class Backend : public Device, public Operations {
 public:
  // Implementations for memory that the host can read. They use info().threads host threads.
  std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                        float deviation, Activations activations = Activations::f32) override;
  /// Dequantises the parts.
  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override;
  std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs) override;

  /// load_quantized_rows of parts that lie in memory.
  std::unique_ptr<Matrix> load_quantized_matrix(std::span<const BlockView> parts, Activations activations);
};

}  // namespace baton
