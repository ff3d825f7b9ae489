// SPDX-License-Identifier: Apache-2.0
// PackedMatrix: a weight [N, C] as panels [ceil(N / 32)][C][32] (panel.h), or as panels of pairs [ceil(N / 32)]
// [ceil(C / 2)][32][2]; missing columns of the last panel are zero.
#pragma once

#include <memory>
#include <span>

#include "engine/backend/backend.h"
#include "engine/cpu/panel.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

class PackedMatrix : public Matrix {
 public:
  template <class Element>
  const Element* panel(std::int64_t index) const {
    return reinterpret_cast<const Element*>(storage.data()) + index * cols * kPanel;
  }

  /// With `in_pairs`: one word for each pair of elements.
  const std::uint32_t* pair_panel(std::int64_t index) const {
    return reinterpret_cast<const std::uint32_t*>(storage.data()) + index * pairs_of(cols) * kPanel;
  }

  Activations activations = Activations::f32;
  bool in_pairs = false;
  Buffer storage;
};

/// The form of a matrix.
struct PackedForm {
  DType dtype;
  Activations activations = Activations::f32;
  bool in_pairs = false;  // of bf16 elements only
};

/// Stacks the parts, which are checked (checks.h) and have `rows` rows in total, into one matrix. The result's memory
/// is `owner`'s. Throws BackendError, std::invalid_argument.
std::unique_ptr<PackedMatrix> pack_matrix(Device& owner, ThreadPool& pool, std::span<const ConstTensorView> parts,
                                          std::int64_t rows, const PackedForm& form);

/// Returns the matrix behind the interface. Throws std::invalid_argument when it belongs to another backend.
const PackedMatrix& packed(const Matrix& matrix);

/// out[C] = row `row` of the matrix, in f32.
void unpack_row(float* out, const PackedMatrix& matrix, std::int64_t row);

}  // namespace baton::cpu
