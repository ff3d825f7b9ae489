// SPDX-License-Identifier: Apache-2.0
// Two loop orders over the same kernel, with the same order of sums:
// few rows   the stored panels are streamed once, several at a time; bound by reading the weights;
// many rows  panels are widened to f32 block by block, the rows of a block stay in the L2 cache; bound by fma.
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "engine/cpu/tile-inl.h"

#include <algorithm>
#include <type_traits>

#include "engine/cpu/matmul.h"

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
      multiply_tile(c, stride, rows + d * count, count, task.w.panel<Element>(p) + d * kPanel, depth * kPanel, panels,
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
        multiply_tile(tile, kPanel, rows, count, panel, 0, 1, block);
      } else {
        widen_panel(wide, panel, block);
        multiply_tile<float>(tile, kPanel, rows, count, wide, 0, 1, block);
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

}  // namespace baton::cpu
#endif  // HWY_ONCE
