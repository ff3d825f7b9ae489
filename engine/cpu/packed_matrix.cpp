#include "engine/cpu/packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/cpu/checks.h"

namespace baton::cpu {
namespace {

/// Reads element i of memory that may be unaligned (a mapped file).
template <DType type>
float read(const std::byte* row, std::int64_t i) {
  if constexpr (type == DType::f32) {
    float value;
    std::memcpy(&value, row + i * 4, 4);
    return value;
  } else {
    std::uint16_t bits;
    std::memcpy(&bits, row + i * 2, 2);
    return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

/// Runs of outputs of one part that fall into one panel have one source type.
template <class Element>
void pack_run(Element* panel, std::int64_t first_column, const ConstTensorView& part, std::int64_t first_row,
              std::int64_t count) {
  const std::int64_t row_bytes = part.stride * static_cast<std::int64_t>(size_of(part.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* source = part.data + (first_row + i) * row_bytes;
    const std::int64_t slot = slot_of<Element>(first_column + i);
    for (std::int64_t c = 0; c < part.cols; ++c) {
      float value = 0;
      switch (part.dtype) {
        case DType::f32: value = read<DType::f32>(source, c); break;
        case DType::bf16: value = read<DType::bf16>(source, c); break;
        case DType::f16: value = read<DType::f16>(source, c); break;
      }
      panel[c * kPanel + slot] = from_f32<Element>(value);
    }
  }
}

template <class Element>
void pack_panel(Element* panel, std::int64_t index, std::span<const ConstTensorView> parts) {
  std::int64_t part_begin = 0;
  for (const ConstTensorView& part : parts) {
    const std::int64_t begin = std::max(index * kPanel, part_begin);
    const std::int64_t end = std::min((index + 1) * kPanel, part_begin + part.rows);
    if (begin < end) pack_run(panel, begin - index * kPanel, part, begin - part_begin, end - begin);
    part_begin += part.rows;
  }
}

}  // namespace

std::unique_ptr<PackedMatrix> pack_matrix(Backend& owner, ThreadPool& pool, std::span<const ConstTensorView> parts,
                                          std::int64_t rows, DType dtype) {
  auto matrix = std::make_unique<PackedMatrix>();
  matrix->rows = rows;
  matrix->cols = parts[0].cols;
  matrix->dtype = dtype;
  if (rows > INT64_MAX - kPanel) throw std::invalid_argument(fmt::format("load_matrix: {} rows", rows));
  const std::int64_t panels = panels_of(rows);
  matrix->bytes = checked_bytes("load_matrix", panels * kPanel, matrix->cols, size_of(dtype));
  matrix->storage = owner.allocate(matrix->bytes);
  with_element(dtype, [&]<class Element>(Element) {
    auto* data = reinterpret_cast<Element*>(matrix->storage.data());
    pool.run(panels, panels * kPanel * matrix->cols, [&](std::int64_t index, int) {
      pack_panel(data + index * matrix->cols * kPanel, index, parts);
    });
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
