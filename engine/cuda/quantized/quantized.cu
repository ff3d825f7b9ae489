// SPDX-License-Identifier: Apache-2.0
// Products of quantised weights on tensor cores, and their rows as floats. The weights are operand A, 16 outputs, so
// that a warp needs no more than eight rows of activations to use a whole instruction. Codes go from memory straight
// into the registers of the operand, as exact numbers in bf16; scales are multiplied with the sums. For prefill the
// weights are unpacked instead (host/device_weights.h), from so many rows on as make that the faster way.
#include "engine/cuda/kernels/simt.cuh"
#include "engine/cuda/quantized/quantized.h"

namespace baton::cuda {

__device__ __forceinline__ float low_half(std::uint32_t word) {
  return half_to_float(static_cast<std::uint16_t>(word & 0xffffu));
}
__device__ __forceinline__ float high_half(std::uint32_t word) {
  return half_to_float(static_cast<std::uint16_t>(word >> 16));
}

struct BlockScales {
  float scale[2];  // of the steps of a block: equal where groups have 32 inputs
  float minimum[2];
};

template <BlockType kType>
struct DeviceConstants {
  static constexpr DeviceFormat kFormat = device_format(kType);
  static constexpr int kBits = kFormat.codes.bits;
  static constexpr int kOffset = kFormat.offset();
  static constexpr bool kMinimums = kFormat.codes.minimums;
  static constexpr CodeTable kTable = kFormat.codes.table;
  static constexpr ScaleType kScales = kFormat.scales;
  static constexpr bool kHalfBytes = kFormat.half_bytes();
  static constexpr std::int64_t kOutputBytes = kFormat.output_bytes();
  static constexpr int kGroups = 32 / kFormat.codes.group;  // of a block
  static constexpr std::int64_t kCodeBytes = kFormat.code_bytes(), kHighBytes = kFormat.high_bytes(),
                                kScaleBytes = kFormat.scale_bytes(), kFactorBytes = kFormat.factor_bytes();
};

/// The scales of one output in a unit.
template <BlockType kType>
struct OutputScales : DeviceConstants<kType> {
  using Base = DeviceConstants<kType>;

  std::uint32_t scales, minimums, factors;

  /// `of_unit`: the scales of the unit; `of_factor`: the factors of its group of units.
  __device__ __forceinline__ void load(const std::byte* of_unit, const std::byte* of_factor, int output) {
    if constexpr (Base::kOutputBytes == 8) {
      const uint2 two = reinterpret_cast<const uint2*>(of_unit)[output];
      scales = two.x, minimums = two.y;
    } else if constexpr (Base::kOutputBytes == 4) {
      scales = reinterpret_cast<const std::uint32_t*>(of_unit)[output];
    } else {
      scales = reinterpret_cast<const std::uint16_t*>(of_unit)[output];
    }
    if constexpr (Base::kScales == ScaleType::integers) {
      if constexpr (Base::kMinimums) {
        factors = reinterpret_cast<const std::uint32_t*>(of_factor)[output];
      } else {
        factors = reinterpret_cast<const std::uint16_t*>(of_factor)[output];
      }
    }
  }

  /// Of block h of the unit.
  __device__ __forceinline__ BlockScales of_block(int h) const {
    if constexpr (Base::kScales == ScaleType::f16) {
      const float scale = h == 0 ? low_half(scales) : high_half(scales);
      if constexpr (!Base::kMinimums) return {{scale, scale}, {0.0f, 0.0f}};
      const float minimum = h == 0 ? low_half(minimums) : high_half(minimums);
      return {{scale, scale}, {minimum, minimum}};
    } else if constexpr (Base::kScales == ScaleType::exponents) {
      const float scale = power_of(byte(h));
      return {{scale, scale}, {0.0f, 0.0f}};
    } else if constexpr (Base::kHalfBytes) {
      return {{scale_of(byte(2 * h) & 15u), scale_of(byte(2 * h + 1) & 15u)},
              {minimum_of(byte(2 * h) >> 4), minimum_of(byte(2 * h + 1) >> 4)}};
    } else if constexpr (Base::kMinimums) {
      const float scale = scale_of(byte(h)), minimum = minimum_of(byte(2 + h));
      return {{scale, scale}, {minimum, minimum}};
    } else if constexpr (Base::kGroups == 2) {
      return {{signed_scale(byte(2 * h)), signed_scale(byte(2 * h + 1))}, {0.0f, 0.0f}};
    } else {
      const float scale = signed_scale(byte(h));
      return {{scale, scale}, {0.0f, 0.0f}};
    }
  }

 private:
  __device__ __forceinline__ std::uint32_t byte(int index) const { return scales >> (8 * index) & 0xffu; }
  __device__ __forceinline__ float scale_of(std::uint32_t integer) const {
    return low_half(factors) * static_cast<float>(integer);
  }
  __device__ __forceinline__ float signed_scale(std::uint32_t bits) const {
    return low_half(factors) * static_cast<float>(static_cast<std::int8_t>(bits));
  }
  __device__ __forceinline__ float minimum_of(std::uint32_t integer) const {
    return -(high_half(factors) * static_cast<float>(integer));
  }
  /// half_exponent(e).
  __device__ __forceinline__ static float power_of(std::uint32_t e) {
    const std::uint32_t bits = e << 23;
    return float_of(bits < 0x00400000u ? 0x00400000u : bits) * 0.5f;  // 2^-127 is subnormal
  }
};

/// Quants of a table, plus 128, from one on, in the bytes of a word.
constexpr std::uint32_t table_word(CodeTable table, std::size_t first) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const int quant = table == CodeTable::e2m1 ? kE2M1Doubled[first + i] : kNonlinear4[first + i];
    word |= static_cast<std::uint32_t>(quant + 128) << (8 * i);
  }
  return word;
}
template <CodeTable kTable>
struct TableWords {
  static constexpr std::uint32_t k0 = table_word(kTable, 0), k4 = table_word(kTable, 4), k8 = table_word(kTable, 8),
                                 k12 = table_word(kTable, 12);
};

/// Four quants of a table, plus 128, in the bytes of a word: those of the codes in the low half of `codes`, and those
/// in its high half.
struct FourQuants {
  std::uint32_t low, high;
};

template <CodeTable kTable>
__device__ __forceinline__ FourQuants look_up(std::uint32_t codes) {
  using Words = TableWords<kTable>;
  // A selection is among eight bytes: bit 3 of a code chooses from the results of both halves of the table.
  const std::uint32_t index = codes & 0x77777777u, half = and_or(codes >> 1, 0x44444444u, 0x32103210u);
  const auto four = [&](std::uint32_t indices, std::uint32_t halves) {
    return select_bytes(select_bytes(Words::k0, Words::k4, indices), select_bytes(Words::k8, Words::k12, indices),
                        halves);
  };
  return {four(index, half), four(index >> 16, half >> 16)};
}

/// A unit of a panel. Numbers of 32 bits: a weight has fewer than 2^32 units.
template <BlockType kType>
struct UnitPlace : DeviceConstants<kType> {
  using Base = DeviceConstants<kType>;
  const QuantizedPart& part;
  std::uint32_t first, first_factor;  // of the panel
  std::uint32_t unit;

  __device__ __forceinline__ UnitPlace(const QuantizedPart& part_in, std::int64_t panel, std::int64_t unit_in)
      : part(part_in),
        first(static_cast<std::uint32_t>(panel * part_in.units)),
        first_factor(static_cast<std::uint32_t>(panel * part_in.factor_units)),
        unit(static_cast<std::uint32_t>(unit_in)) {}
  __device__ __forceinline__ std::uint64_t at() const { return first + unit; }
  __device__ __forceinline__ const std::byte* codes() const { return part.codes + at() * Base::kCodeBytes; }
  __device__ __forceinline__ const std::byte* high() const { return part.high + at() * Base::kHighBytes; }
  __device__ __forceinline__ const std::byte* scales() const { return part.scales + at() * Base::kScaleBytes; }
  __device__ __forceinline__ const std::byte* factors() const {
    constexpr auto kUnits = static_cast<std::uint32_t>(kUnitsPerFactor);
    return part.factors + std::uint64_t{first_factor + unit / kUnits} * Base::kFactorBytes;
  }
};

template <BlockType kType>
struct QuantUnit : DeviceConstants<kType> {
  using Base = DeviceConstants<kType>;
  static constexpr int kBits = Base::kBits;
  static constexpr int kCodeWords = kBits == 8 ? 8 : kBits >= 4 ? 4 : 2;

  std::uint32_t codes[kCodeWords];
  std::uint32_t high[2];
  OutputScales<kType> scales[2];  // of outputs g and g + 8

  __device__ __forceinline__ void load(const UnitPlace<kType>& place, int lane) {
    if constexpr (kCodeWords == 2) {
      const uint2 two = reinterpret_cast<const uint2*>(place.codes())[lane];
      codes[0] = two.x, codes[1] = two.y;
    }
    const auto* words = reinterpret_cast<const uint4*>(place.codes());
#pragma unroll
    for (int i = 0; i < kCodeWords / 4; ++i) {
      const uint4 four = words[i * 32 + lane];
      codes[4 * i] = four.x, codes[4 * i + 1] = four.y, codes[4 * i + 2] = four.z, codes[4 * i + 3] = four.w;
    }
    if constexpr (kBits == 5 || kBits == 3) {
      high[0] = reinterpret_cast<const std::uint32_t*>(place.high())[lane];
    } else if constexpr (kBits == 6) {
      const uint2 two = reinterpret_cast<const uint2*>(place.high())[lane];
      high[0] = two.x, high[1] = two.y;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[i].load(place.scales(), place.factors(), lane / 4 + 8 * i);
  }

  /// Operand A of step s of block h: the quants, exact in bf16.
  __device__ __forceinline__ void operand(std::uint32_t (&a)[4], int h, int s) const {
    if constexpr (Base::kTable == CodeTable::nonlinear4) {
      nonlinear_operand(a, codes[2 * h + s]);
    } else if constexpr (Base::kTable == CodeTable::e2m1) {
      float_operand(a, codes[2 * h + s]);
    } else if constexpr (kBits == 8) {
      byte_operand(a, h, s);
    } else {
      code_operand(a, h, s);
    }
  }

 private:
  __device__ __forceinline__ void byte_operand(std::uint32_t (&a)[4], int h, int s) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t word = codes[4 * h + 2 * s + j % 2];
      const auto quant = [&](int byte) {  // the bits of 2^23 and a code are those of their sum
        return float_of(and_or(word >> (8 * byte), 0xffu, 0x4b000000u)) - (0x1p23f + Base::kOffset);
      };
      a[j] = pack_bf16(quant(j / 2 * 2), quant(j / 2 * 2 + 1));
    }
  }

  __device__ __forceinline__ void code_operand(std::uint32_t (&a)[4], int h, int s) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t pair = 0x43004300u;  // of 128 and a code
      if constexpr (kBits >= 4) pair = and_or(codes[2 * h + s] >> (4 * j), 0x000f000fu, pair);
      if constexpr (kBits < 4) pair = and_or(codes[h] >> (2 * (4 * s + j)), 0x00030003u, pair);
      if constexpr (kBits == 3) pair = and_or(moved<2>(high[0], 8 * h + 4 * s + j), 0x00040004u, pair);
      if constexpr (kBits == 5) pair = and_or(moved<4>(high[0], 8 * h + 4 * s + j), 0x00100010u, pair);
      if constexpr (kBits == 6) pair = and_or(moved<4>(high[h], 2 * (4 * s + j)), 0x00300030u, pair);
      a[j] = add_bf16(pair, -(128.0f + Base::kOffset));
    }
  }

  /// Brings bit `from` of both halves of a word to bit kTo.
  template <int kTo>
  __device__ __forceinline__ static std::uint32_t moved(std::uint32_t word, int from) {
    return from <= kTo ? word << (kTo - from) : word >> (from - kTo);
  }

  /// bf16 has seven bits behind the first: 128 and the low seven bits of (quant + 128), less 128, or less 256 if the
  /// quant is negative.
  __device__ __forceinline__ static void nonlinear_operand(std::uint32_t (&a)[4], std::uint32_t word) {
    const FourQuants quants = look_up<Base::kTable>(word);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t pair = select_bytes(quants.low, quants.high, 0x0400u + 0x1111u * j);  // bytes 0 and 2
      a[j] = add_pairs_bf16(and_or(pair, 0x007f007fu, 0x43004300u), (pair & 0x00800080u) ^ 0xc380c380u);
    }
  }

  /// Exponent and mantissa of a code, at their places in bf16, make its value times 2^-126: bf16 has more exponents.
  __device__ __forceinline__ static void float_operand(std::uint32_t (&a)[4], std::uint32_t word) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t magnitude = moved<6>(word, 4 * j) & 0x01c001c0u;
      a[j] = multiply_bf16(and_or(moved<15>(word, 4 * j + 3), 0x80008000u, magnitude), 0x1p127f);
    }
  }
};

// Products of quantised weights on tensor cores: the weights are operand A, 16 outputs, so that a warp needs no more
// than eight rows of activations to use a whole instruction. Codes go from memory straight into the registers of the
// operand, as exact numbers in bf16; scales are multiplied with the sums. For prefill the weights are unpacked instead
// (quantized_weights.h), from so many rows on as make that the faster way.
//
// Where the rows are few, the eight warps of a block take one split each of the sums of 16 outputs; where there are
// many rows, a warp computes all splits of its own outputs and rows one after another. Both add the splits in the same
// order: an output has the same bits in any batch.

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
      sums = (kTogether ? product.sums : product.half_sums) + first_row + lane % 4 * 2 +
             unit * 2 * QuantUnit<kType>::kGroups * product.sum_rows;
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
    if constexpr (QuantUnit<kType>::kMinimums) sums += 2 * QuantUnit<kType>::kGroups * product.sum_rows;
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
#pragma unroll
        for (int g = 0; g < QuantUnit<kType>::kGroups; ++g) {
          const std::int64_t at = (h * QuantUnit<kType>::kGroups + g) * product.sum_rows + tile * kTileRows;
          const float2 of_rows = *reinterpret_cast<const float2*>(rows.sums + at);
          const float x_sums[2] = {of_rows.x, of_rows.y};
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[tile][i] = fmaf(scales[i / 2].minimum[g], x_sums[i % 2], acc[tile][i]);
        }
      }
    }
  }
}

/// Units of a panel.
struct Split {
  std::int64_t begin, end;
};

/// Adds the units of a split. As many units are loaded before the first is used.
template <BlockType kType, int kTiles, int kAhead>
__device__ __forceinline__ void add_units(float (&acc)[kTiles][4], const QuantizedPart& part,
                                          const QuantizedProduct& product, std::int64_t panel, std::int64_t first_row,
                                          Split split, int lane) {
  UnitPlace<kType> place(part, panel, split.begin);
  LaneRows<kType, kTiles> rows(product, first_row, split.begin, lane);
  const auto last = static_cast<std::uint32_t>(split.end);
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
  add_units<kType, kTiles, kTiles == 1 ? 2 : 1>(acc, part, product, panel, first_row, split, lane);
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
    add_units<kType, kTiles, 1>(acc, part, product, panel, first_row, split, lane);
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

// Rows of a quantised weight as floats (embeddings; a block writes one row), panels of it in bf16 (a warp writes one
// unit), and sums of activations, a warp for each.

namespace {

constexpr int kRowThreads = 128;

template <BlockType kType>
__device__ __forceinline__ int quant_at(const QuantizedPart& part, std::int64_t at, int output, int input) {
  using Constants = DeviceConstants<kType>;
  constexpr int kBits = Constants::kBits;
  const int h = input / 32, i = input % 32;
  const int p = Constants::kGroups == 2 ? i % 16 / 4 : i / 8, s = Constants::kGroups == 2 ? i / 16 : i / 4 % 2;
  const int lane = output % 8 * 4 + p, j = output / 8 + i % 4 / 2 * 2, odd = i % 2;
  const std::byte* codes = part.codes + at * Constants::kCodeBytes;
  if constexpr (kBits == 8) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes);
    return bytes[((h * 32 + lane) * 4 + 2 * s + j % 2) * 4 + i % 4] - Constants::kOffset;
  } else {
    const auto word = [](const std::byte* words, int index) {
      return reinterpret_cast<const std::uint32_t*>(words)[index];
    };
    const auto four = [&] { return word(codes, lane * 4 + 2 * h + s) >> (16 * odd + 4 * j) & 15u; };
    const auto two = [&](const std::byte* words) {
      return word(words, lane * 2 + h) >> (16 * odd + 2 * (4 * s + j)) & 3u;
    };
    const auto one = [&](const std::byte* words) { return word(words, lane) >> (16 * odd + 8 * h + 4 * s + j) & 1u; };
    if constexpr (Constants::kTable != CodeTable::none) {
      return static_cast<int>(look_up<Constants::kTable>(four()).low & 0xffu) - 128;
    } else {
      const std::byte* high = part.high + at * Constants::kHighBytes;
      std::uint32_t code = kBits >= 4 ? four() : two(codes);
      if constexpr (kBits == 3) code |= one(high) << 2;
      if constexpr (kBits == 5) code |= one(high) << 4;
      if constexpr (kBits == 6) code |= two(high) << 4;
      return static_cast<int>(code) - Constants::kOffset;
    }
  }
}

template <BlockType kType>
__global__ void dequantize_rows(float* out, std::int64_t out_stride, std::int64_t cols, QuantizedPart part,
                                const std::int32_t* ids) {
  using Constants = DeviceConstants<kType>;
  const std::int64_t row = ids[blockIdx.x] - part.row;
  if (row < 0 || row >= part.rows) return;
  const std::int64_t panel = row / kPanelOutputs;
  const int output = static_cast<int>(row % kPanelOutputs);
  for (std::int64_t input = threadIdx.x; input < cols; input += kRowThreads) {
    const std::int64_t unit = input / kUnitInputs;
    const int in_unit = static_cast<int>(input % kUnitInputs), half = in_unit / 16;
    const int quant = quant_at<kType>(part, panel * part.units + unit, output, in_unit);
    OutputScales<kType> loaded;
    const UnitPlace<kType> place(part, panel, unit);
    loaded.load(place.scales(), place.factors(), output);
    const BlockScales scales = loaded.of_block(half / 2);
    const float product = static_cast<float>(quant) * (half % 2 == 0 ? scales.scale[0] : scales.scale[1]);
    const float minimum = half % 2 == 0 ? scales.minimum[0] : scales.minimum[1];
    out[blockIdx.x * out_stride + input] = Constants::kMinimums ? product + minimum : product;
  }
}

template <BlockType kType>
__global__ void __launch_bounds__(kRowThreads)
    unpack_panels(Bf16* out, std::int64_t stride, QuantizedPart part, std::int64_t first) {
  using Unit = QuantUnit<kType>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= part.units) return;  // a whole warp
  Unit unit;
  unit.load(UnitPlace<kType>(part, first + blockIdx.y, index), lane);
  Bf16* rows = out + (blockIdx.y * kPanelOutputs + lane / 4) * stride + index * kUnitInputs;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t codes[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) unit.operand(codes[s], h, s);
#pragma unroll
    for (int output = 0; output < 2; ++output) {  // g and g + 8
      const BlockScales scales = unit.scales[output].of_block(h);
      const auto value = [&](float code, int s) {
        const float product = code * scales.scale[s];
        return Unit::kMinimums ? product + scales.minimum[s] : product;
      };
      const auto pair = [&](int s, int j) {
        const std::uint32_t two = codes[s][output + 2 * j];
        return pack_bf16(value(float_of(two << 16), s), value(float_of(two & 0xffff0000u), s));
      };
      Bf16* block = rows + output * 8 * stride + h * kBlockInputs;
      if constexpr (Unit::kGroups == 1) {  // the inputs of both steps are neighbours: DeviceFormat::input_of
        *reinterpret_cast<uint4*>(block + 8 * (lane % 4)) = uint4{pair(0, 0), pair(0, 1), pair(1, 0), pair(1, 1)};
      } else {
        *reinterpret_cast<uint2*>(block + 4 * (lane % 4)) = uint2{pair(0, 0), pair(0, 1)};
        *reinterpret_cast<uint2*>(block + 16 + 4 * (lane % 4)) = uint2{pair(1, 0), pair(1, 1)};
      }
    }
  }
}

/// A warp sums a block, or each half of it: `group` is 32 or 16.
__global__ void block_sums(float* sums, std::int64_t sum_rows, const Bf16* x, std::int64_t x_stride, std::int64_t rows,
                           std::int64_t blocks, int group) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / kWarp) + threadIdx.x / kWarp;
  if (warp >= sum_rows * blocks) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t row = warp / blocks, block = warp % blocks;
  float sum = row < rows ? to_float(x[row * x_stride + block * kBlockInputs + lane]) : 0.0f;
  for (int mask = group / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane % group == 0) sums[(block * (kBlockInputs / group) + lane / group) * sum_rows + row] = sum;
}

}  // namespace

void launch_block_sums(Stream stream, float* sums, std::int64_t sum_rows, ConstTensorView x, int group) {
  const std::int64_t blocks = x.cols / kBlockInputs;
  launch(stream, dim3(static_cast<unsigned>(blocks_of(sum_rows * blocks, kRowThreads / kWarp))), kRowThreads, 0,
         block_sums, sums, sum_rows, elements<Bf16>(x), x.stride, x.rows, blocks, group);
}

void launch_unpack_panels(Stream stream, Bf16* out, const QuantizedPart& part, std::int64_t first,
                          std::int64_t panels) {
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    const dim3 blocks(static_cast<unsigned>(blocks_of(part.units, kRowThreads / kWarp)), static_cast<unsigned>(panels));
    launch(stream, blocks, kRowThreads, 0, unpack_panels<kType>, out, part.units * kUnitInputs, part, first);
  });
}

void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids) {
  if (out.rows == 0) return;
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    launch(stream, dim3(static_cast<unsigned>(out.rows)), kRowThreads, 0, dequantize_rows<kType>, elements<float>(out),
           out.stride, out.cols, part, ids);
  });
}

}  // namespace baton::cuda
