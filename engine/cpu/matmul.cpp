// SPDX-License-Identifier: Apache-2.0
// Two loop orders over the same kernel, with the same order of sums:
// few rows   the stored panels are streamed once, several at a time; bound by reading the weights;
// many rows  panels are widened to f32 block by block, the rows of a block stay in the L2 cache; bound by fma.
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/backend/backend.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/tile-inl.h"

#ifndef BATON_CPU_MATMUL_SHARED_
#define BATON_CPU_MATMUL_SHARED_
namespace baton::cpu {

inline constexpr std::int64_t kFewRows = 36;    // with more rows, panels are widened to f32 first
inline constexpr std::int64_t kRowBlock = 240;  // rows of x kept in L2: 240 KiB per depth block
inline constexpr std::int64_t kPanelBlock = 8;  // panels that share one copy of a row block
inline constexpr std::int64_t kDepthBlock = kTileStride;

struct MatmulTask : ProductTask {
  TensorView out;
  ConstTensorView x;
  const PackedMatrix& w;
  std::span<const float> bias;

  /// The number of columns of panel p; the last panel may have fewer than kPanel.
  std::int64_t columns(std::int64_t p) const { return std::min(kPanel, w.rows - p * kPanel); }
};

/// Initialises the fma chains: c[rows, 32] = bias of panel p, or zero.
inline void start_chains(float* c, std::ptrdiff_t stride, std::int64_t rows, const MatmulTask& task, std::int64_t p) {
  float start[kPanel] = {};
  if (!task.bias.empty()) std::copy_n(task.bias.data() + p * kPanel, task.columns(p), start);
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(start, kPanel, c + r * stride);
}

}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

/// `rows` holds x by depth blocks: [C / 256][T][256].
template <class Element>
void multiply_few(const MatmulTask& task, const float* rows) {
  const std::int64_t count = task.x.rows;
  const std::int64_t depth = task.w.cols;
  constexpr std::int64_t kMaxPanels = 4;
  const std::int64_t at_once = std::max<std::size_t>(1, units_for(static_cast<std::size_t>(count)) / kUnitsPerPanel);
  float c[kFewRows * kMaxPanels * kPanel];
  for (std::int64_t p = task.panel; p < task.panel_end; p += at_once) {
    const std::int64_t panels = std::min(at_once, task.panel_end - p);
    const std::int64_t stride = panels * kPanel;
    for (std::int64_t i = 0; i < panels; ++i) start_chains(c + i * kPanel, stride, count, task, p + i);
    for (std::int64_t d = 0; d < depth; d += kDepthBlock) {
      multiply_tile(c, stride, rows + d * count, count,
                    PanelLine{task.w.panel<Element>(p) + d * kPanel, depth * kPanel, panels},
                    std::min(kDepthBlock, depth - d));
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t columns = (panels - 1) * kPanel + task.columns(p + panels - 1);
      std::copy_n(c + r * stride, columns, task.out.f32(r) + p * kPanel);
    }
  }
}

template <class Element>
void multiply_many(const MatmulTask& task, float* scratch) {
  const std::int64_t count = task.row_end - task.row;
  const std::int64_t depth = task.w.cols;
  float* rows = scratch;                         // [count, kDepthBlock]
  float* wide = rows + kRowBlock * kDepthBlock;  // [kDepthBlock, 32]
  float* c = wide + kDepthBlock * kPanel;        // [panels][count, 32]: dense, whatever the stride of the output
  for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
    start_chains(c + (p - task.panel) * count * kPanel, kPanel, count, task, p);
  }
  for (std::int64_t d = 0; d < depth; d += kDepthBlock) {
    const std::int64_t block = std::min(kDepthBlock, depth - d);
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(task.x.f32(task.row + r) + d, block, rows + r * kDepthBlock);
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      float* tile = c + (p - task.panel) * count * kPanel;
      const Element* panel = task.w.panel<Element>(p) + d * kPanel;
      if constexpr (std::is_same_v<Element, float>) {
        multiply_tile(tile, kPanel, rows, count, PanelLine{panel, 0, 1}, block);
      } else {
        widen_panel(wide, panel, block);
        multiply_tile<float>(tile, kPanel, rows, count, {wide, 0, 1}, block);
      }
    }
  }
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      const float* row = c + ((p - task.panel) * count + r) * kPanel;
      std::copy_n(row, task.columns(p), task.out.f32(task.row + r) + p * kPanel);
    }
  }
}

void multiply_few_task(const MatmulTask& task, const float* rows) {
  with_element(task.w.dtype, [&]<class Element>(Element) HWY_ATTR { multiply_few<Element>(task, rows); });
}

void multiply_many_task(const MatmulTask& task, float* scratch) {
  with_element(task.w.dtype, [&]<class Element>(Element) HWY_ATTR { multiply_many<Element>(task, scratch); });
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(multiply_few_task);
HWY_EXPORT(multiply_many_task);

static_assert(kRowBlock * kDepthBlock + kDepthBlock * kPanel + kRowBlock * kPanelBlock * kPanel <= kThreadFloats);

/// Returns x as depth blocks [C / 256][T][256]; a single row already has that layout.
const float* depth_blocks(Scratch& scratch, const ConstTensorView& x) {
  if (x.rows == 1) return x.f32();
  const std::int64_t blocks = (x.cols + kDepthBlock - 1) / kDepthBlock;
  float* out = scratch.shared(blocks * kDepthBlock * x.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t d = 0; d < x.cols; d += kDepthBlock) {
      std::copy_n(x.f32(r) + d, std::min(kDepthBlock, x.cols - d), out + d * x.rows + r * kDepthBlock);
    }
  }
  return out;
}

}  // namespace

void matmul(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
            std::span<const float> bias) {
  if (x.rows == 0) return;
  const std::int64_t panels = panels_of(w.rows);
  const std::int64_t work = std::max(x.rows * w.rows * w.cols / 16, static_cast<std::int64_t>(w.bytes / 4));
  const bool few = x.rows <= kFewRows;
  // Few rows want several panels, so that enough chains are in flight.
  const ProductTasks tasks = few ? ProductTasks::of_few(x.rows, panels, pool.size(), 4)
                                 : ProductTasks::of_many(x.rows, panels, pool.size(), {kRowBlock, kPanelBlock});
  const float* blocks = few ? depth_blocks(scratch, x) : nullptr;

  pool.run(tasks.count(), work, [&](std::int64_t index, int thread) {
    const MatmulTask task{tasks[index], out, x, w, bias};
    if (few) {
      HWY_DYNAMIC_DISPATCH(multiply_few_task)(task, blocks);
    } else {
      HWY_DYNAMIC_DISPATCH(multiply_many_task)(task, scratch.of_thread(thread));
    }
  });
}

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

std::unique_ptr<PackedMatrix> pack_matrix(LastingMemory& memory, ThreadPool& pool,
                                          std::span<const ConstTensorView> parts, std::int64_t rows,
                                          const PackedForm& form) {
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
  matrix->storage = memory.allocate(matrix->bytes);
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
#endif  // HWY_ONCE
