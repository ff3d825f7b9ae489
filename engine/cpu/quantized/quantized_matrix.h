// SPDX-License-Identifier: Apache-2.0
// QuantizedMatrix: a weight [N, C] whose parts keep the quants of their block types, in panels (quantized_panel.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cpu/quantized/quantized_panel.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// The panels of one part: outputs [row, row + rows); columns missing from the last panel are zeros.
struct PartPanels {
  BlockType type = BlockType::q8_0;
  std::int64_t row = 0, rows = 0;
  std::int64_t panel = 0;        // the first, among all of the matrix
  std::int64_t panel_bytes = 0;  // of each
  const std::byte* data = nullptr;
};

class QuantizedMatrix : public Matrix {
 public:
  std::vector<PartPanels> parts;
  std::int64_t panels = 0;
  Activations activations = Activations::int8;
  Buffer storage;

  const PartPanels& part_of_panel(std::int64_t panel) const;
  const PartPanels& part_of_row(std::int64_t row) const;
};

/// `parts` are checked (checks.h), have `rows` rows together and types that have panels.
std::unique_ptr<QuantizedMatrix> pack_quantized(Backend& owner, ThreadPool& pool, std::span<const BlockRows> parts,
                                                std::int64_t rows, Activations activations);

/// out[C] = row `row` of the matrix, the values of dequantize().
void dequantize_row(float* out, const QuantizedMatrix& matrix, std::int64_t row);

}  // namespace baton::cpu
