// SPDX-License-Identifier: Apache-2.0
// Products of quantised weights and activations in 8 bits, on tensor cores: the weights are operand A, 16 outputs, so
// that a warp needs no more than eight rows of activations to use a whole instruction, and decoding uses the same one
// as prefill. Weights are read once for each tile of rows, from memory straight into the operand's registers.
//
// Where the rows are few, the eight warps of a block take one split each of the sums of 16 outputs; where there are
// many rows, a warp computes all splits of its own 16 outputs one after another. Both add the splits in the same order:
// an output has the same bits in any batch.
#include "engine/cuda/quantized/quantized_kernels.h"
#include "engine/cuda/quantized/quantized_unit.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = kSplits * kWarp;
constexpr std::int64_t kTileRows = 8;  // columns of operand B
constexpr int kSomeTiles = 4;          // tiles of a warp where rows are more than those of one
constexpr std::int64_t kSomeRows = kSomeTiles * kTileRows;
constexpr int kPanels = 2;                     // of a block of many rows
constexpr int kRowGroups = kSplits / kPanels;  // of kSomeRows rows: its warps read the same weights at about one time

/// 1.5 * 2^23 as bits. An integer below 2^22 in magnitude, added to it, is the same number added to the float: integer
/// sums that start here become floats by one subtraction. Sums are below 32 * 255 * 127.
constexpr std::uint32_t kShiftBits = 0x4b400000u;
constexpr float kShift = 0x1.8p23f;

/// Adds units [begin, end) of a panel to the chains of kTiles tiles of rows. acc[tile][i] is, with g = lane / 4 and
/// p = lane % 4, output g + 8 (i / 2) of row 8 tile + 2 p + i % 2.
template <BlockType kType, int kTiles>
__device__ __forceinline__ void add_unit(float (&acc)[kTiles][4], const Unit<kType>& unit, const QuantizedInputs& x,
                                         std::int64_t index, std::int64_t first_row, int lane) {
  std::uint32_t a[2][4];
  BlockScales scales[2][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    unit.operand(a[h], h);
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[h][i] = unit.scales[i].of_block(h);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const std::int64_t row = index * x.rows + first_row + tile * kTileRows;
    const uint4 b = *reinterpret_cast<const uint4*>(x.quants + (row + lane / 4) * kUnitInputs + lane % 4 * 16);
    const std::uint32_t words[2][2] = {{b.x, b.y}, {b.z, b.w}};
    const std::int64_t pair = (row + lane % 4 * 2) * 2;
    const float4 of_rows = *reinterpret_cast<const float4*>(x.scales + pair);
    const float x_scales[2][2] = {{of_rows.x, of_rows.z}, {of_rows.y, of_rows.w}};  // [h][row]
    float x_sums[2][2];
    if constexpr (Unit<kType>::kMinimums) {
      const float4 sums = *reinterpret_cast<const float4*>(x.sums + pair);
      x_sums[0][0] = sums.x, x_sums[0][1] = sums.z, x_sums[1][0] = sums.y, x_sums[1][1] = sums.w;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      constexpr int kGroups = Unit<kType>::kGroups;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        std::uint32_t sums[4];
        if constexpr (kGroups == 1) {
          multiply_bytes_16x8x32<!Unit<kType>::kSigned>(sums, a[h], words[h], kShiftBits);
        } else {
          multiply_bytes_16x8x16(sums, a[h][2 * group], a[h][2 * group + 1], words[h][group], kShiftBits);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[tile][i] =
              fmaf((float_of(sums[i]) - kShift) * x_scales[h][i % 2], scales[h][i / 2].scale[group], acc[tile][i]);
        }
      }
      if constexpr (Unit<kType>::kMinimums) {
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[tile][i] = fmaf(scales[h][i / 2].minimum, x_sums[h][i % 2], acc[tile][i]);
      }
    }
  }
}

/// As many units are loaded before the first is used.
template <BlockType kType, int kTiles, int kAhead>
__device__ __forceinline__ void add_units(float (&acc)[kTiles][4], const QuantizedPart& part, const QuantizedInputs& x,
                                          std::int64_t panel, std::int64_t first_row, std::int64_t begin,
                                          std::int64_t end, int lane) {
  std::int64_t index = begin;
  for (; index + kAhead <= end; index += kAhead) {
    Unit<kType> units[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) units[i].load(part, panel, index + i, lane);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) add_unit<kType, kTiles>(acc, units[i], x, index + i, first_row, lane);
  }
  for (; index < end; ++index) {
    Unit<kType> unit;
    unit.load(part, panel, index, lane);
    add_unit<kType, kTiles>(acc, unit, x, index, first_row, lane);
  }
}

struct Split {
  std::int64_t begin, end;
};
__device__ __forceinline__ Split split_of(int index, const QuantizedPart& part) {
  const std::int64_t begin = index * part.split_units, end = begin + part.split_units;
  return {begin < part.units ? begin : part.units, end < part.units ? end : part.units};
}

__device__ __forceinline__ void store(const QuantizedProduct& product, const QuantizedPart& part, std::int64_t panel,
                                      std::int64_t first_row, int lane, int i, float sum) {
  const std::int64_t output = panel * kPanelOutputs + lane / 4 + i / 2 * 8;
  const std::int64_t row = first_row + lane % 4 * 2 + i % 2;
  if (output >= part.rows || row >= product.t) return;
  const std::int64_t column = part.row + output;
  product.out[row * product.out_stride + column] = sum + (product.bias != nullptr ? product.bias[column] : 0.0f);
}

template <int kTiles>
struct SplitSums {
  float sums[kSplits][kTiles * 4][kWarp];
};

template <BlockType kType, int kTiles>
__global__ void __launch_bounds__(kThreads)
    quantized_few_rows(QuantizedProduct product, QuantizedPart part, QuantizedInputs x) {
  auto& shared = shared_memory<SplitSums<kTiles>>();
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t panel = blockIdx.x, first_row = static_cast<std::int64_t>(blockIdx.y) * kTiles * kTileRows;
  const Split split = split_of(warp, part);
  float acc[kTiles][4] = {};
  add_units<kType, kTiles, kTiles == 1 ? 2 : 1>(acc, part, x, panel, first_row, split.begin, split.end, lane);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared.sums[warp][tile * 4 + i][lane] = acc[tile][i];
  }
  sync_block();
  for (int value = warp; value < kTiles * 4; value += kSplits) {
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < kSplits; ++s) sum += shared.sums[s][value][lane];
    store(product, part, panel, first_row + value / 4 * kTileRows, lane, value % 4, sum);
  }
}

/// Each thread's own, out of the way of its registers.
struct Totals {
  float sums[kSomeTiles * 4][kThreads];
};

template <BlockType kType>
__global__ void __launch_bounds__(kThreads, 2)
    quantized_many_rows(QuantizedProduct product, QuantizedPart part, QuantizedInputs x) {
  auto& totals = shared_memory<Totals>();
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t panel = static_cast<std::int64_t>(blockIdx.x) * kPanels + warp % kPanels;
  const std::int64_t first_row = (static_cast<std::int64_t>(blockIdx.y) * kRowGroups + warp / kPanels) * kSomeRows;
  if (panel * kPanelOutputs >= part.rows || first_row >= product.t) return;  // a whole warp
  for (int s = 0; s < kSplits; ++s) {
    const Split split = split_of(s, part);
    float acc[kSomeTiles][4] = {};
    add_units<kType, kSomeTiles, 1>(acc, part, x, panel, first_row, split.begin, split.end, lane);
#pragma unroll
    for (int tile = 0; tile < kSomeTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& total = totals.sums[tile * 4 + i][threadIdx.x];
        total = (s == 0 ? 0.0f : total) + acc[tile][i];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kSomeTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store(product, part, panel, first_row + tile * kTileRows, lane, i, totals.sums[tile * 4 + i][threadIdx.x]);
    }
  }
}

unsigned count(std::int64_t value) { return static_cast<unsigned>(value); }

}  // namespace

std::int64_t padded_rows(std::int64_t t) {
  if (t <= kTileRows) return kTileRows;
  return round_up(t, kSomeRows);
}

void launch_quantized_product(Stream stream, const QuantizedProduct& product, const QuantizedPart& part,
                              const QuantizedInputs& x, int multiprocessors) {
  const std::int64_t panels = part.panels();
  const dim3 many(count(blocks_of(panels, kPanels)), count(blocks_of(x.rows, kRowGroups * kSomeRows)));
  const bool fills = std::int64_t{many.x} * many.y >= 2 * multiprocessors;
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    if (product.t <= kTileRows) {
      launch(stream, dim3(count(panels)), kThreads, sizeof(SplitSums<1>), quantized_few_rows<kType, 1>, product, part,
             x);
    } else if (product.t <= kSomeRows || !fills) {
      launch(stream, dim3(count(panels), count(x.rows / kSomeRows)), kThreads, sizeof(SplitSums<kSomeTiles>),
             quantized_few_rows<kType, kSomeTiles>, product, part, x);
    } else {
      launch(stream, many, kThreads, sizeof(Totals), quantized_many_rows<kType>, product, part, x);
    }
  });
}

}  // namespace baton::cuda
