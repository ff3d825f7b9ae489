// SPDX-License-Identifier: Apache-2.0
// Products of panels whose types have the kernels of BATON_CODE_SOURCE (source_of in quantized.h): a source that CMake
// generates for each defines it and includes this file, so that no source compiles long.
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/quantized/quantized_panels-inl.h"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <algorithm>
#include <optional>

#include "engine/cpu/quantized/quantized.h"
#include "engine/cpu/quantized/quantized_amx-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace {

template <BlockType kType, Dot kDot>
void multiply_few(const QuantizedTask& task, const PanelView& panel) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const std::int64_t count = task.x.rows;
  float c[kFewRows<kDot> * kPanel];
  panel.start_chains(c, count, task.bias);
  const std::byte* chunk = panel.data;
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk, chunk += kFormat.chunk_bytes()) {
    const std::int64_t blocks = std::min(kQuantChunk, task.w.cols - d) / kQuantBlock;
    multiply_chunk_rows<kFormat.codes, kDot, true>(
        c, task.chunk(d / kQuantChunk), count, reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes()),
        kFormat.block_bytes(), PackedScales<kFormat>{chunk}, blocks);
  }
  panel.store(task.out, c, 0, count);
}

template <BlockType kType, Dot kDot>
void multiply_many(const QuantizedTask& task, const PanelView& panel, QuantizedScratch& scratch) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const std::int64_t count = task.row_end - task.row;
  const bool tiles = task.kind == RowKind::tiles;
  panel.start_chains(scratch.c, tiles ? QuantizedTask::tiles_of(count) * kAmxRows : count, task.bias);
  const std::byte* chunk = panel.data;
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk, chunk += kFormat.chunk_bytes()) {
    const std::int64_t blocks = std::min(kQuantChunk, task.w.cols - d) / kQuantBlock;
    const auto* codes = reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes());
    const LoadedScales<kFormat.codes> scales{scratch.scales};
    widen_scales<kFormat>(scratch.scales, chunk, blocks);
    constexpr bool kBytes = kFormat.codes.bits == 8;  // as they are stored
    constexpr std::int64_t kBytesOfBlock = kBytes ? kFormat.block_bytes() : kWideBytes;
    if constexpr (!kBytes) widen_codes<kFormat.codes>(scratch.codes, codes, kFormat.block_bytes(), blocks);
    const std::uint8_t* bytes = kBytes ? codes : scratch.codes;
    if (tiles) {
      if constexpr (wide_offset(kFormat.codes) != 0) subtract_offset<kFormat.codes>(scratch.codes, blocks);
      multiply_chunk_tiles<kFormat.codes>(scratch.c, task.tiles(d / kQuantChunk) + task.row / kAmxRows,
                                          QuantizedTask::tiles_of(count), bytes, kBytesOfBlock, scales, blocks);
    } else {
      multiply_chunk_rows<kFormat.codes, kDot, kBytes>(scratch.c, task.chunk(d / kQuantChunk) + task.row, count, bytes,
                                                       kBytesOfBlock, scales, blocks);
    }
  }
  panel.store(task.out, scratch.c, task.row, count);
}

/// Calls fn with std::integral_constant<BlockType, type>, a type of this source.
template <class Fn>
HWY_INLINE void with_own_type(BlockType type, const Fn& fn) {
  with_code_type(type, [&]<BlockType kType>(std::integral_constant<BlockType, kType> constant) HWY_ATTR {
    if constexpr (source_of(kType) == BATON_CODE_SOURCE) fn(constant);
  });
}

void multiply_own_panels(const QuantizedTask& task, std::int64_t panel, std::int64_t panel_end, float* scratch) {
  std::optional<AmxShapes> shapes;
  with_dot(task.instructions, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR {
    for (std::int64_t p = panel; p < panel_end; ++p) {
      const PanelView view(task.w, p);
      with_own_type(view.part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) HWY_ATTR {
        if (task.kind == RowKind::few) return multiply_few<kType, kDot>(task, view);
        constexpr int kGroup = scaled_codes(kType).codes.group;
        if (task.kind == RowKind::tiles && (!shapes || shapes->group() != kGroup)) shapes.emplace(kGroup);
        multiply_many<kType, kDot>(task, view, *reinterpret_cast<QuantizedScratch*>(scratch));
      });
    }
  });
}

void widen_own_chunk(float* values, BlockType type, const std::byte* chunk, std::int64_t blocks, std::uint8_t* codes,
                     WideScales& scales) {
  with_own_type(type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) HWY_ATTR {
    constexpr PanelFormat kFormat = panel_format(kType);
    widen_scales<kFormat>(scales, chunk, blocks);
    widen_codes<kFormat.codes>(codes, reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes()),
                               kFormat.block_bytes(), blocks);
    widen_values<kFormat.codes>(values, codes, kWideBytes, scales, blocks);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(multiply_own_panels);
HWY_EXPORT(widen_own_chunk);

}  // namespace

template <int kSource>
void multiply_panels(const QuantizedTask& task, std::int64_t panel, std::int64_t panel_end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(multiply_own_panels)(task, panel, panel_end, scratch);
}
template <int kSource>
void widen_chunk(float* values, BlockType type, const std::byte* chunk, std::int64_t blocks, std::uint8_t* codes,
                 WideScales& scales) {
  HWY_DYNAMIC_DISPATCH(widen_own_chunk)(values, type, chunk, blocks, codes, scales);
}

template void multiply_panels<BATON_CODE_SOURCE>(const QuantizedTask&, std::int64_t, std::int64_t, float*);
template void widen_chunk<BATON_CODE_SOURCE>(float*, BlockType, const std::byte*, std::int64_t, std::uint8_t*,
                                             WideScales&);

}  // namespace baton::cpu
#endif  // HWY_ONCE
