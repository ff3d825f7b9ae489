// SPDX-License-Identifier: Apache-2.0
// Products of quantised weights on tensor cores: the weights are operand A, 16 outputs, so that a warp needs no more
// than eight rows of activations to use a whole instruction. Codes go from memory straight into the registers of the
// operand, as exact numbers in bf16; scales are multiplied with the sums. For prefill the weights are unpacked instead
// (quantized_weights.h), from so many rows on as make that the faster way.
//
// Where the rows are few, the eight warps of a block take one split each of the sums of 16 outputs; where there are
// many rows, a warp computes all splits of its own outputs and rows one after another. Both add the splits in the same
// order: an output has the same bits in any batch.
#include "engine/cuda/quantized/quantized.h"
#include "engine/cuda/quantized/quantized_unit.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = kSplits * kWarp;
constexpr std::int64_t kTileRows = 8;  // columns of operand B
/// Tiles of a warp where the rows are more than those of one. Minimums need registers: two blocks are to fit.
template <BlockType kType>
constexpr int kSomeTiles = scaled_codes(kType).codes.minimums ? 3 : 4;
template <BlockType kType>
constexpr std::int64_t kSomeRows = kSomeTiles<kType>* kTileRows;
static_assert(kSomeRows<BlockType::q4_k> == kSumRows);
constexpr int kPanels = 2;                     // of a block of many rows
constexpr int kRowGroups = kSplits / kPanels;  // of as many rows: its warps read the same weights at about one time

/// A unit's inputs of the rows that a lane loads, and the sums of blocks of those that it adds up.
template <BlockType kType, int kTiles>
struct LaneRows {
  static constexpr bool kTogether = QuantUnit<kType>::kGroups == 1;  // see DeviceFormat::input_of
  static constexpr std::int64_t kChunk = 8;                          // 16 bytes

  const Bf16* x;
  std::uint32_t chunk[kTiles];  // at which the row of each tile begins
  const float* sums;            // of types with minimums

  __device__ __forceinline__ LaneRows(const QuantizedProduct& product, std::int64_t first_row, std::int64_t unit,
                                      int lane) {
    x = product.x + unit * kUnitInputs + lane % 4 * (kTogether ? 8 : 4);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::int64_t row = first_row + tile * kTileRows + lane / 4;
      chunk[tile] = static_cast<std::uint32_t>((row < product.t ? row : product.t - 1) * (product.x_stride / kChunk));
    }
    if constexpr (QuantUnit<kType>::kMinimums) {
      sums = product.sums + first_row + lane % 4 * 2 + unit * 2 * product.sum_rows;
    }
  }
  /// Operand B of block h: the words of step s are [s][0] and [s][1].
  __device__ __forceinline__ void load(std::uint32_t (&b)[2][2], int tile, int h) const {
    const Bf16* block = x + static_cast<std::int64_t>(chunk[tile]) * kChunk + h * kBlockInputs;
    if constexpr (kTogether) {
      const uint4 all = *reinterpret_cast<const uint4*>(block);
      b[0][0] = all.x, b[0][1] = all.y, b[1][0] = all.z, b[1][1] = all.w;
    } else {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint2 two = *reinterpret_cast<const uint2*>(block + s * 16);
        b[s][0] = two.x, b[s][1] = two.y;
      }
    }
  }
  __device__ __forceinline__ void advance(const QuantizedProduct& product) {
    x += kUnitInputs;
    if constexpr (QuantUnit<kType>::kMinimums) sums += 2 * product.sum_rows;
  }
};

/// Adds a unit to the chains of kTiles tiles of rows. acc[tile][i] is, with g = lane / 4 and p = lane % 4, output
/// g + 8 (i / 2) of row 8 tile + 2 p + i % 2.
template <BlockType kType, int kTiles>
__device__ __forceinline__ void add_unit(float (&acc)[kTiles][4], const QuantUnit<kType>& unit,
                                         const QuantizedProduct& product, const LaneRows<kType, kTiles>& rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t a[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) unit.operand(a[s], h, s);
    const BlockScales scales[2] = {unit.scales[0].of_block(h), unit.scales[1].of_block(h)};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      std::uint32_t b[2][2];
      rows.load(b, tile, h);
      float sum[4];
      product_16x8x16(sum, a[0], b[0][0], b[0][1]);
      if constexpr (QuantUnit<kType>::kGroups == 1) {
        multiply_16x8x16(sum, a[1], b[1][0], b[1][1]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[tile][i] = fmaf(sum[i], scales[i / 2].scale[0], acc[tile][i]);
        product_16x8x16(sum, a[1], b[1][0], b[1][1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[tile][i] = fmaf(sum[i], scales[i / 2].scale[1], acc[tile][i]);
      if constexpr (QuantUnit<kType>::kMinimums) {
        const float2 of_rows = *reinterpret_cast<const float2*>(rows.sums + h * product.sum_rows + tile * kTileRows);
        const float x_sums[2] = {of_rows.x, of_rows.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[tile][i] = fmaf(scales[i / 2].minimum, x_sums[i % 2], acc[tile][i]);
      }
    }
  }
}

/// Units [begin, end) of a panel. As many units are loaded before the first is used.
template <BlockType kType, int kTiles, int kAhead>
__device__ __forceinline__ void add_units(float (&acc)[kTiles][4], const QuantizedPart& part,
                                          const QuantizedProduct& product, std::int64_t panel, std::int64_t first_row,
                                          std::int64_t begin, std::int64_t end, int lane) {
  UnitPlace<kType> place(part, panel, begin);
  LaneRows<kType, kTiles> rows(product, first_row, begin, lane);
  const auto last = static_cast<std::uint32_t>(end);
  while (place.unit + kAhead <= last) {
    QuantUnit<kType> units[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      units[i].load(place, lane);
      ++place.unit;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      add_unit<kType, kTiles>(acc, units[i], product, rows);
      rows.advance(product);
    }
  }
  for (; place.unit < last; ++place.unit, rows.advance(product)) {
    QuantUnit<kType> unit;
    unit.load(place, lane);
    add_unit<kType, kTiles>(acc, unit, product, rows);
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
  const float result = sum + (product.bias != nullptr ? product.bias[column] : 0.0f);
  const std::int64_t at = row * product.out_stride + column;
  if (product.out_bf16) {
    reinterpret_cast<Bf16*>(product.out)[at] = to_bf16(result);
  } else {
    reinterpret_cast<float*>(product.out)[at] = result;
  }
}

template <int kTiles>
struct SplitSums {
  float sums[kSplits][kTiles * 4][kWarp];
};

template <BlockType kType, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 3 : 2)
    quantized_few_rows(QuantizedProduct product, QuantizedPart part) {
  auto& shared = shared_memory<SplitSums<kTiles>>();
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t panel = blockIdx.x, first_row = static_cast<std::int64_t>(blockIdx.y) * kTiles * kTileRows;
  const Split split = split_of(warp, part);
  float acc[kTiles][4] = {};
  add_units<kType, kTiles, kTiles == 1 ? 2 : 1>(acc, part, product, panel, first_row, split.begin, split.end, lane);
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
template <int kTiles>
struct Totals {
  float sums[kTiles * 4][kThreads];
};

template <BlockType kType>
__global__ void __launch_bounds__(kThreads, 2) quantized_many_rows(QuantizedProduct product, QuantizedPart part) {
  constexpr int kTiles = kSomeTiles<kType>;
  auto& totals = shared_memory<Totals<kTiles>>();
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t panel = static_cast<std::int64_t>(blockIdx.x) * kPanels + warp % kPanels;
  const std::int64_t first_row =
      (static_cast<std::int64_t>(blockIdx.y) * kRowGroups + warp / kPanels) * kSomeRows<kType>;
  if (panel * kPanelOutputs >= part.rows || first_row >= product.t) return;  // a whole warp
  for (int s = 0; s < kSplits; ++s) {
    const Split split = split_of(s, part);
    float acc[kTiles][4] = {};
    add_units<kType, kTiles, 1>(acc, part, product, panel, first_row, split.begin, split.end, lane);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& total = totals.sums[tile * 4 + i][threadIdx.x];
        total = (s == 0 ? 0.0f : total) + acc[tile][i];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store(product, part, panel, first_row + tile * kTileRows, lane, i, totals.sums[tile * 4 + i][threadIdx.x]);
    }
  }
}

unsigned count(std::int64_t value) { return static_cast<unsigned>(value); }

}  // namespace

void launch_quantized_product(Stream stream, const QuantizedProduct& product, const QuantizedPart& part,
                              int multiprocessors) {
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    constexpr int kTiles = kSomeTiles<kType>;
    const std::int64_t panels = part.panels();
    const dim3 many(count(blocks_of(panels, kPanels)), count(blocks_of(product.t, kRowGroups * kSomeRows<kType>)));
    const bool fills = std::int64_t{many.x} * many.y >= 2 * multiprocessors;
    if (product.t <= kTileRows) {
      launch(stream, dim3(count(panels)), kThreads, sizeof(SplitSums<1>), quantized_few_rows<kType, 1>, product, part);
    } else if (product.t <= kSomeRows<kType> || !fills) {
      launch(stream, dim3(count(panels), count(blocks_of(product.t, kSomeRows<kType>))), kThreads,
             sizeof(SplitSums<kTiles>), quantized_few_rows<kType, kTiles>, product, part);
    } else {
      launch(stream, many, kThreads, sizeof(Totals<kTiles>), quantized_many_rows<kType>, product, part);
    }
  });
}

}  // namespace baton::cuda
