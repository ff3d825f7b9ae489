// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>

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

/// Writes elements [begin, end) of some rows of a part as columns of a panel, from column `first` on.
template <DType type, class Element>
void pack_columns(Element* panel, std::int64_t first, const ConstTensorView& rows, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    const std::byte* source = rows.row_range(i, i + 1).data;
    Element* column = panel + slot_of<Element>(first + i);
    for (std::int64_t c = begin; c < end; ++c) column[c * kPanel] = from_f32<Element>(read<type>(source, c));
  }
}

template <class Element>
void pack_panel(Element* panel, std::int64_t index, std::span<const ConstTensorView> parts) {
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
            pack_columns<DType::f32>(panel, first, rows, c, c_end);
            break;
          case DType::bf16:
            pack_columns<DType::bf16>(panel, first, rows, c, c_end);
            break;
          case DType::f16:
            pack_columns<DType::f16>(panel, first, rows, c, c_end);
            break;
        }
      }
      part_begin += part.rows;
    }
  }
}

}  // namespace

std::unique_ptr<PackedMatrix> pack_matrix(Device& owner, ThreadPool& pool, std::span<const ConstTensorView> parts,
                                          std::int64_t rows, DType dtype) {
  auto matrix = std::make_unique<PackedMatrix>();
  matrix->rows = rows;
  matrix->cols = parts[0].cols;
  matrix->dtype = dtype;
  if (rows > INT64_MAX - kPanel)
    throw std::invalid_argument(
        fmt::format("load_matrix: {} rows are invalid: expected at most {}", rows, INT64_MAX - kPanel));
  const std::int64_t panels = panels_of(rows);
  matrix->bytes = checked_bytes("load_matrix", panels * kPanel, matrix->cols, size_of(dtype));
  matrix->storage = owner.allocate(matrix->bytes);
  with_element(dtype, [&]<class Element>(Element) {
    auto* data = reinterpret_cast<Element*>(matrix->storage.data());
    pool.run(panels, panels * kPanel * matrix->cols,
             [&](std::int64_t index, int) { pack_panel(data + index * matrix->cols * kPanel, index, parts); });
  });
  return matrix;
}

const PackedMatrix& packed(const Matrix& matrix) {
  const auto* ours = dynamic_cast<const PackedMatrix*>(&matrix);
  if (ours == nullptr) throw std::invalid_argument("the matrix belongs to another backend");
  return *ours;
}

void unpack_row(float* out, const PackedMatrix& matrix, std::int64_t row) {
  with_element(matrix.dtype, [&]<class Element>(Element) {
    const Element* source = matrix.panel<Element>(row / kPanel) + slot_of<Element>(row % kPanel);
    for (std::int64_t c = 0; c < matrix.cols; ++c) out[c] = to_f32(source[c * kPanel]);
  });
}

}  // namespace baton::cpu
