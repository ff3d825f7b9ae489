// SPDX-License-Identifier: Apache-2.0
// What products with quantised weights mean, one value at a time, over the blocks as a file holds them.
#pragma once

#include <span>
#include <vector>

#include "engine/backend/backend.h"

namespace baton::cpu {

/// One quant of a row of blocks: the weight is quant * scale + minimum.
struct Quant {
  int quant = 0;
  float scale = 0;
  float minimum = 0;
  int group = 32;  // inputs that share the scale
  bool has_minimum = false;
};

/// Input i of a row. `type` has codes (code_format.h).
Quant quant_of(BlockType type, const std::byte* row, std::int64_t i);

class ReferenceBlocks final : public Matrix {
 public:
  /// Reads the checked parts.
  ReferenceBlocks(std::span<const BlockRows> parts, Activations activations);

  struct Row {
    BlockType type;
    const std::byte* data;
  };
  Row row(std::int64_t i) const;
  void dequantize_row(float* out, std::int64_t row) const;
  Activations activations() const { return activations_; }

 private:
  std::vector<BlockView> parts_;
  std::vector<std::vector<std::byte>> data_;  // of the parts
  Activations activations_;
};

void reference_quantized_matmul(TensorView out, ConstTensorView x, const ReferenceBlocks& w,
                                std::span<const float> bias);

}  // namespace baton::cpu
