// SPDX-License-Identifier: Apache-2.0
// What a lane holds of one unit of quantised weights: it loads the words, makes operands of tensor cores of them, and
// the scales of its two outputs.
#pragma once

#include "engine/cuda/kernels/vectors.cuh"
#include "engine/cuda/quantized/quantized_layout.h"

namespace baton::cuda {

__device__ __forceinline__ float low_half(std::uint32_t word) {
  return half_to_float(static_cast<std::uint16_t>(word & 0xffffu));
}
__device__ __forceinline__ float high_half(std::uint32_t word) {
  return half_to_float(static_cast<std::uint16_t>(word >> 16));
}

/// The scales and minimums of one block of one output. Scales are less by the 2^shift() that codes are larger by.
struct BlockScales {
  float scale[2];  // of the halves of a block: equal where groups have 32 inputs
  float minimum;
};

template <BlockType kType>
struct DeviceConstants {
  static constexpr DeviceFormat kFormat = device_format(kType);
  static constexpr int kBits = kFormat.codes.bits;
  static constexpr int kShift = kFormat.shift();
  static constexpr bool kSigned = kFormat.is_signed();
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

  __device__ __forceinline__ void load(const QuantizedPart& part, std::int64_t panel, std::int64_t unit, int output) {
    const std::byte* of_unit = part.scales + (panel * part.units + unit) * Base::kScaleBytes;
    if constexpr (Base::kMinimums && !kIntegers) {
      const uint2 two = reinterpret_cast<const uint2*>(of_unit)[output];
      scales = two.x, minimums = two.y;
    } else {
      scales = reinterpret_cast<const std::uint32_t*>(of_unit)[output];
    }
    if constexpr (kIntegers) {
      const std::int64_t at = panel * part.factor_units + unit / kUnitsPerFactor;
      factors = reinterpret_cast<const std::uint32_t*>(part.factors + at * Base::kFactorBytes)[output];
    }
  }

  /// Of block h of the unit.
  __device__ __forceinline__ BlockScales of_block(int h) const {
    constexpr float kLess = 1.0f / (1 << Base::kShift);
    if constexpr (!kIntegers) {
      const float scale = (h == 0 ? low_half(scales) : high_half(scales)) * kLess;
      if constexpr (!Base::kMinimums) return {{scale, scale}, 0.0f};
      return {{scale, scale}, h == 0 ? low_half(minimums) : high_half(minimums)};
    } else {
      const float factor = low_half(factors);
      const auto byte = [&](int index) { return scales >> (8 * index) & 0xffu; };
      if constexpr (Base::kMinimums) {
        const float scale = factor * static_cast<float>(byte(h)) * kLess;
        return {{scale, scale}, -(high_half(factors) * static_cast<float>(byte(2 + h)))};
      } else {
        const auto group = [&](int index) {
          return factor * static_cast<float>(static_cast<std::int8_t>(byte(index))) * kLess;
        };
        return {{group(2 * h), group(2 * h + 1)}, 0.0f};
      }
    }
  }
};

template <BlockType kType>
struct Unit : DeviceConstants<kType> {
  using Base = DeviceConstants<kType>;
  static constexpr int kBits = Base::kBits;
  static constexpr int kCodeWords = kBits == 8 ? 8 : 4;

  std::uint32_t codes[kCodeWords];
  std::uint32_t high[2];
  OutputScales<kType> scales[2];  // of outputs g and g + 8

  __device__ __forceinline__ void load(const QuantizedPart& part, std::int64_t panel, std::int64_t unit, int lane) {
    const std::int64_t at = panel * part.units + unit;
    const auto* words = reinterpret_cast<const uint4*>(part.codes + at * Base::kCodeBytes);
#pragma unroll
    for (int i = 0; i < kCodeWords / 4; ++i) {
      const uint4 four = words[i * 32 + lane];
      codes[4 * i] = four.x, codes[4 * i + 1] = four.y, codes[4 * i + 2] = four.z, codes[4 * i + 3] = four.w;
    }
    if constexpr (kBits == 5) {
      high[0] = reinterpret_cast<const std::uint32_t*>(part.high + at * Base::kHighBytes)[lane];
    } else if constexpr (kBits == 6) {
      const uint2 two = reinterpret_cast<const uint2*>(part.high + at * Base::kHighBytes)[lane];
      high[0] = two.x, high[1] = two.y;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[i].load(part, panel, unit, lane / 4 + 8 * i);
  }

  /// The four words of operand A for block h.
  __device__ __forceinline__ void operand(std::uint32_t (&a)[4], int h) const {
    constexpr std::uint32_t kMask = (0xfu << Base::kShift) * 0x01010101u;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if constexpr (kBits == 8) {
        a[r] = codes[4 * h + r];
      } else {
        const std::uint32_t word = codes[2 * h + r / 2];
        a[r] = (r % 2 == 0 ? word << Base::kShift : word >> (4 - Base::kShift)) & kMask;
        if constexpr (kBits == 5) a[r] |= high[0] << (7 - 4 * h - r) & 0x80808080u;
        if constexpr (kBits == 6) a[r] |= high[h] << (6 - 2 * r) & 0xc0c0c0c0u;
      }
    }
  }
};

}  // namespace baton::cuda
