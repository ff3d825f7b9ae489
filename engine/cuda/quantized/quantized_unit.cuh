// SPDX-License-Identifier: Apache-2.0
// What a lane holds of one unit of quantised weights: it loads the words, makes operands of tensor cores of them, and
// the scales of its two outputs.
#pragma once

#include "engine/cuda/kernels/vectors.cuh"
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
  float minimum;
};

template <BlockType kType>
struct DeviceConstants {
  static constexpr DeviceFormat kFormat = device_format(kType);
  static constexpr int kBits = kFormat.codes.bits;
  static constexpr int kOffset = kFormat.offset();
  static constexpr bool kMinimums = kFormat.codes.minimums;
  static constexpr int kGroups = 32 / kFormat.codes.group;  // of a block
  static constexpr std::int64_t kCodeBytes = kFormat.code_bytes(), kHighBytes = kFormat.high_bytes(),
                                kScaleBytes = kFormat.scale_bytes(), kFactorBytes = kFormat.factor_bytes();
};

/// The scales of one output in a unit.
template <BlockType kType>
struct OutputScales : DeviceConstants<kType> {
  using Base = DeviceConstants<kType>;
  static constexpr bool kIntegers = Base::kFormat.integer_scales;

  std::uint32_t scales, minimums, factors;

  /// `of_unit`: the scales of the unit; `of_factor`: the factors of its group of units.
  __device__ __forceinline__ void load(const std::byte* of_unit, const std::byte* of_factor, int output) {
    if constexpr (Base::kMinimums && !kIntegers) {
      const uint2 two = reinterpret_cast<const uint2*>(of_unit)[output];
      scales = two.x, minimums = two.y;
    } else {
      scales = reinterpret_cast<const std::uint32_t*>(of_unit)[output];
    }
    if constexpr (kIntegers) factors = reinterpret_cast<const std::uint32_t*>(of_factor)[output];
  }

  /// Of block h of the unit.
  __device__ __forceinline__ BlockScales of_block(int h) const {
    if constexpr (!kIntegers) {
      const float scale = h == 0 ? low_half(scales) : high_half(scales);
      if constexpr (!Base::kMinimums) return {{scale, scale}, 0.0f};
      return {{scale, scale}, h == 0 ? low_half(minimums) : high_half(minimums)};
    } else {
      const float factor = low_half(factors);
      const auto byte = [&](int index) { return scales >> (8 * index) & 0xffu; };
      if constexpr (Base::kMinimums) {
        const float scale = factor * static_cast<float>(byte(h));
        return {{scale, scale}, -(high_half(factors) * static_cast<float>(byte(2 + h)))};
      } else {
        const auto group = [&](int index) {
          return factor * static_cast<float>(static_cast<std::int8_t>(byte(index)));
        };
        return {{group(2 * h), group(2 * h + 1)}, 0.0f};
      }
    }
  }
};

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
  static constexpr int kCodeWords = kBits == 8 ? 8 : 4;

  std::uint32_t codes[kCodeWords];
  std::uint32_t high[2];
  OutputScales<kType> scales[2];  // of outputs g and g + 8

  __device__ __forceinline__ void load(const UnitPlace<kType>& place, int lane) {
    const auto* words = reinterpret_cast<const uint4*>(place.codes());
#pragma unroll
    for (int i = 0; i < kCodeWords / 4; ++i) {
      const uint4 four = words[i * 32 + lane];
      codes[4 * i] = four.x, codes[4 * i + 1] = four.y, codes[4 * i + 2] = four.z, codes[4 * i + 3] = four.w;
    }
    if constexpr (kBits == 5) {
      high[0] = reinterpret_cast<const std::uint32_t*>(place.high())[lane];
    } else if constexpr (kBits == 6) {
      const uint2 two = reinterpret_cast<const uint2*>(place.high())[lane];
      high[0] = two.x, high[1] = two.y;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[i].load(place.scales(), place.factors(), lane / 4 + 8 * i);
  }

  /// Operand A of step s of block h: the codes less their offset, exact in bf16.
  __device__ __forceinline__ void operand(std::uint32_t (&a)[4], int h, int s) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kBits == 8) {
        const std::uint32_t word = codes[4 * h + 2 * s + j % 2];
        const auto quant = [&](int byte) {  // the bits of 2^23 and a code are those of their sum
          return float_of(and_or(word >> (8 * byte), 0xffu, 0x4b000000u)) - (0x1p23f + Base::kOffset);
        };
        a[j] = pack_bf16(quant(j / 2 * 2), quant(j / 2 * 2 + 1));
      } else {
        std::uint32_t pair = and_or(codes[2 * h + s] >> (4 * j), 0x000f000fu, 0x43004300u);  // of 128 and a code
        if constexpr (kBits == 5) pair = and_or(moved(high[0], 8 * h + 4 * s + j), 0x00100010u, pair);
        if constexpr (kBits == 6) pair = and_or(moved(high[h], 2 * (4 * s + j)), 0x00300030u, pair);
        a[j] = add_bf16(pair, -(128.0f + Base::kOffset));
      }
    }
  }

 private:
  /// Brings bit `from` of both halves of a word to bit 4.
  __device__ __forceinline__ static std::uint32_t moved(std::uint32_t word, int from) {
    return from <= 4 ? word << (4 - from) : word >> (from - 4);
  }
};

}  // namespace baton::cuda
