// SPDX-License-Identifier: Apache-2.0
// Which instructions multiply bytes (quantized_tile-inl.h, quantized_amx-inl.h) and pairs of bf16 (matmul_bf16.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "engine/backend/backend.h"
#include "engine/cpu/machine.h"
#include "engine/tensor/tensor.h"

namespace baton::cpu {

enum class Dot : std::uint8_t { pairs, quads };

/// Which dot product instructions the processor has.
struct DotInstructions {
  bool avx512_vnni = false;
  bool avx_vnni = false;
  bool neon_sdot = false;
  bool avx512_bf16 = false;  // of bf16, in pairs
  bool amx_int8 = false;     // of tiles of bytes, and the system saves their registers
};
/// Asks Linux for the use of AMX in this process, where the processor has it. Alternate signal stacks must have
/// sysconf(_SC_MINSIGSTKSZ) bytes from then on; where a thread has a smaller one already, Linux refuses, and AMX is not
/// used.
DotInstructions dot_instructions();

// Sizes that the product kernels (tile-inl.h, matmul_bf16.cpp) share with the code that prepares its operands.

/// The number of floats between rows of the left operand, and so the maximum depth of one call.
inline constexpr std::ptrdiff_t kTileStride = 256;

/// The number of words, each a pair of bf16, between rows of the left operand in pairs.
inline constexpr std::ptrdiff_t kPairStride = 256;

// The panel: the layout of every right-hand operand. A panel holds 32 columns (outputs of a weight, keys, or columns of
// a head) of `depth` elements each, depth-major: row c of a panel is element c of all 32 columns, one cache line in
// bf16. A product streams a panel from begin to end, with columns in vector lanes.
//
// Slots of a row. f32: column n is at n. bf16: columns n and n + 16 share a 32-bit word (low and high half), so a
// vector of words widens to two vectors of floats with one shift and one mask, for any vector width.
//
// Pairs: the other form of a bf16 panel, for instructions that multiply two elements of a column at once. A row holds
// elements 2 i and 2 i + 1 of all 32 columns; those of column n share word n. The even element is in the high half, as
// the instruction adds its product first (matmul_bf16.cpp). An odd depth is filled up with zeros.

inline constexpr std::int64_t kPanel = 32;

/// Returns the index of column n, in [0, 32), within a row of a panel.
template <class Element>
constexpr std::int64_t slot_of(std::int64_t n);
template <>
constexpr std::int64_t slot_of<float>(std::int64_t n) {
  return n;
}
template <>
constexpr std::int64_t slot_of<std::uint16_t>(std::int64_t n) {
  return (n % 16) * 2 + n / 16;
}

constexpr std::int64_t pairs_of(std::int64_t depth) { return (depth + 1) / 2; }

/// Returns the index of element c of column n within a panel of pairs.
constexpr std::int64_t place_in_pairs(std::int64_t c, std::int64_t n) { return (c / 2 * kPanel + n) * 2 + 1 - c % 2; }

constexpr std::int64_t panels_of(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

template <class Element>
Element from_f32(float value);
template <>
inline float from_f32<float>(float value) {
  return value;
}
template <>
inline std::uint16_t from_f32<std::uint16_t>(float value) {
  return f32_to_bf16(value);
}

inline float to_f32(float value) { return value; }
inline float to_f32(std::uint16_t bits) { return bf16_to_f32(bits); }

/// Calls fn with a value of the element type that stores `dtype`: float or std::uint16_t (bf16 bits).
template <class Fn>
void with_element(DType dtype, const Fn& fn) {
  if (dtype == DType::f32) {
    fn(float{});
  } else {
    fn(std::uint16_t{});
  }
}

// How a product is divided among threads.

/// The part of a product that one task computes: rows [row, row_end) of x, panels [panel, panel_end) of w.
struct ProductTask {
  std::int64_t row, row_end;
  std::int64_t panel, panel_end;
};

/// Tasks of a product: blocks of rows times blocks of panels.
class ProductTasks {
 public:
  /// Of a task, at most.
  struct Limits {
    std::int64_t rows, panels;
  };

  /// Few rows: each task computes all of them, and what takes the time is to read w. Half of the panels is divided
  /// among the threads, then half of the rest, and so on: the first tasks read long stretches of memory, and the last
  /// ones are so short that the threads end together, though they read at different rates. A task has at least
  /// `min_panels`, unless threads had none then.
  static ProductTasks of_few(std::int64_t rows, std::int64_t panels, int threads, std::int64_t min_panels = 1) {
    ProductTasks tasks(rows, panels);
    tasks.per_level_ = std::min<std::int64_t>(threads, panels);
    while (panels >> tasks.levels_ >= threads * min_panels) ++tasks.levels_;
    return tasks;
  }

  /// Many rows: tasks of nearly equal size. Four of them per thread, so that one that is interrupted holds up the
  /// others little, and no more where `limits` do not ask for it. Their number is a multiple of the threads.
  static ProductTasks of_many(std::int64_t rows, std::int64_t panels, int threads, Limits limits) {
    ProductTasks tasks(rows, panels);
    tasks.row_blocks_ = divided_up(rows, limits.rows);
    const std::int64_t blocks =
        std::max<std::int64_t>({4 * threads / tasks.row_blocks_, divided_up(panels, limits.panels), 1});
    tasks.per_level_ = std::min(divided_up(blocks, threads) * threads, panels);
    return tasks;
  }

  std::int64_t count() const { return row_blocks_ * panel_blocks(); }

  ProductTask operator[](std::int64_t index) const {
    const std::int64_t row = index / panel_blocks(), block = index % panel_blocks();
    return {rows_ * row / row_blocks_, rows_ * (row + 1) / row_blocks_, first_panel(block), first_panel(block + 1)};
  }

 private:
  ProductTasks(std::int64_t rows, std::int64_t panels) : rows_(rows), panels_(panels) {}

  static std::int64_t divided_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

  std::int64_t panel_blocks() const { return levels_ * per_level_; }
  std::int64_t first_panel(std::int64_t block) const {
    const std::int64_t level = block / per_level_, left = left_at(level);
    return panels_ - left + (left - left_at(level + 1)) * (block % per_level_) / per_level_;
  }
  std::int64_t left_at(std::int64_t level) const { return level < levels_ ? panels_ >> level : 0; }

  std::int64_t rows_, panels_;
  std::int64_t row_blocks_ = 1;
  std::int64_t levels_ = 1, per_level_ = 0;  // blocks of panels
};

// PackedMatrix: a weight [N, C] as panels [ceil(N / 32)][C][32] (panel.h), or as panels of pairs [ceil(N / 32)]
// [ceil(C / 2)][32][2]; missing columns of the last panel are zero.

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

/// Stacks the parts, which are checked (backend.h) and have `rows` rows in total, into one matrix. The result's memory
/// is `memory`'s. Throws BackendError, std::invalid_argument.
std::unique_ptr<PackedMatrix> pack_matrix(LastingMemory& memory, ThreadPool& pool,
                                          std::span<const ConstTensorView> parts, std::int64_t rows,
                                          const PackedForm& form);

/// Returns the matrix behind the interface. Throws std::invalid_argument when it belongs to another backend.
const PackedMatrix& packed(const Matrix& matrix);

/// out[C] = row `row` of the matrix, in f32.
void unpack_row(float* out, const PackedMatrix& matrix, std::int64_t row);

// Matrix products with packed weights: of activations as they are (matmul.cpp), and rounded to bf16 (matmul_bf16.cpp).
// The caller has checked the arguments (backend.h).

/// out[T, N] = x[T, C] * w^T + bias; see Operations::matmul.
void matmul(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
            std::span<const float> bias);

/// Are weights with bf16 activations to be packed in pairs? Products have the same bits in either form.
bool multiplies_pairs(DotInstructions has);

/// out[T, N] = bf16(x[T, C]) * w^T + bias, for w with bf16 activations: the chains of matmul over rounded inputs.
void matmul_bf16(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
                 std::span<const float> bias);

/// Panels in a line: each begins `stride` elements after the one before.
template <class Element>
struct PanelLine {
  const Element* first;
  std::ptrdiff_t stride;
  std::int64_t count;
};
template <class Element>
PanelLine(const Element*, std::ptrdiff_t, std::int64_t) -> PanelLine<Element>;

}  // namespace baton::cpu
