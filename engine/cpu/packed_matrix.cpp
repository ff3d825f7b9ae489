// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/backend/checks.h"

namespace baton::cpu {
namespace {

constexpr std::int64_t kPackDepth = 256;  // a block of a panel that stays in the L1 cache while its columns are written

/// Returns element i of memory that may be unaligned (a mapped file).
template <DType type>
float read(const std::byte* data, std::int64_t i) {
  if constexpr (type == DType::f32) {
    float value;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  } else {
    std::uint16_t bits;
    std::memcpy(&bits, data + i * 2, 2);
    return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

/// `value` as products with bf16 activations take it, before its rounding to bf16.
float as_operand(float value) { return std::abs(bf16_to_f32(f32_to_bf16(value))) < kSmallestOperand ? 0.0f : value; }

/// Writes elements [begin, end) of some rows of a part as columns of a panel, from column `first` on.
template <DType type, class Element>
void pack_columns(Element* panel, std::int64_t first, const ConstTensorView& rows, std::int64_t begin, std::int64_t end,
                  const PackedForm& form) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    const std::byte* source = rows.row_range(i, i + 1).data;
    if (form.in_pairs) {
      for (std::int64_t c = begin; c < end; ++c)
        panel[place_in_pairs(c, first + i)] = from_f32<Element>(as_operand(read<type>(source, c)));
      continue;
    }
    const bool rounds = form.activations == Activations::bf16;
    Element* column = panel + slot_of<Element>(first + i);
    for (std::int64_t c = begin; c < end; ++c) {
      const float value = read<type>(source, c);
      column[c * kPanel] = from_f32<Element>(rounds ? as_operand(value) : value);
    }
  }
}

template <class Element>
void pack_panel(Element* panel, std::int64_t index, std::span<const ConstTensorView> parts, const PackedForm& form) {
  const std::int64_t depth = parts[0].cols;
  for (std::int64_t c = 0; c < depth; c += kPackDepth) {
    const std::int64_t c_end = std::min(c + kPackDepth, depth);
    std::int64_t part_begin = 0;
    for (const ConstTensorView& part : parts) {
      const std::int64_t begin = std::max(index * kPanel, part_begin);
      const std::int64_t end = std::min((index + 1) * kPanel, part_begin + part.rows);
      if (begin < end) {
        const ConstTensorView rows = part.row_range(begin - part_begin, end - part_begin);
        const std::int64_t first = begin - index * kPanel;
        switch (part.dtype) {
          case DType::f32:
            pack_columns<DType::f32>(panel, first, rows, c, c_end, form);
            break;
          case DType::bf16:
            pack_columns<DType::bf16>(panel, first, rows, c, c_end, form);
            break;
          case DType::f16:
            pack_columns<DType::f16>(panel, first, rows, c, c_end, form);
            break;
        }
      }
      part_begin += part.rows;
    }
  }
}

}  // namespace

std::unique_ptr<PackedMatrix> pack_matrix(Device& owner, ThreadPool& pool, std::span<const ConstTensorView> parts,
                                          std::int64_t rows, const PackedForm& form) {
  auto matrix = std::make_unique<PackedMatrix>();
  matrix->rows = rows;
  matrix->cols = parts[0].cols;
  matrix->dtype = form.dtype;
  matrix->activations = form.activations;
  matrix->in_pairs = form.in_pairs;
  if (rows > INT64_MAX - kPanel)
    throw std::invalid_argument(
        fmt::format("load_matrix: {} rows are invalid: expected at most {}", rows, INT64_MAX - kPanel));
  const std::int64_t panels = panels_of(rows);
  const std::int64_t depth = form.in_pairs ? 2 * pairs_of(matrix->cols) : matrix->cols;
  matrix->bytes = checked_bytes("load_matrix", panels * kPanel, depth, size_of(form.dtype));
  matrix->storage = owner.allocate(matrix->bytes);
  with_element(form.dtype, [&]<class Element>(Element) {
    auto* data = reinterpret_cast<Element*>(matrix->storage.data());
    pool.run(panels, panels * kPanel * depth,
             [&](std::int64_t index, int) { pack_panel(data + index * depth * kPanel, index, parts, form); });
  });
  return matrix;
}

const PackedMatrix& packed(const Matrix& matrix) {
  const auto* ours = dynamic_cast<const PackedMatrix*>(&matrix);
  if (ours == nullptr) throw std::invalid_argument("the matrix belongs to another backend");
  return *ours;
}

void unpack_row(float* out, const PackedMatrix& matrix, std::int64_t row) {
  if (matrix.in_pairs) {
    const auto* panel = reinterpret_cast<const std::uint16_t*>(matrix.pair_panel(row / kPanel));
    for (std::int64_t c = 0; c < matrix.cols; ++c) out[c] = bf16_to_f32(panel[place_in_pairs(c, row % kPanel)]);
    return;
  }
  with_element(matrix.dtype, [&]<class Element>(Element) {
    const Element* source = matrix.panel<Element>(row / kPanel) + slot_of<Element>(row % kPanel);
    for (std::int64_t c = 0; c < matrix.cols; ++c) out[c] = to_f32(source[c * kPanel]);
  });
}

}  // namespace baton::cpu
