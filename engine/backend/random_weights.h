// SPDX-License-Identifier: Apache-2.0
// Random weights as a function of a seed and the weight's index, so that any number of threads, and a device, generate
// the same weights.
#pragma once

#include <cstdint>

#include "engine/base/random.h"

namespace baton {

/// SplitMix64: maps a counter to 64 random bits.
BATON_BOTH std::uint64_t scrambled(std::uint64_t counter) { return mixed_bits(counter * kSplitMixStep); }

/// Returns a nearly normal number of deviation 1: the scaled sum of four uniform 16-bit numbers.
BATON_BOTH float normal(std::uint64_t bits) {
  const auto sum =
      static_cast<std::int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  const float deviation_of_sum = 37837.23f;  // 65536 / sqrt(3)
  return static_cast<float>(sum - 2 * 0xffff) / deviation_of_sum;
}

/// Returns weight `index` (row * columns + column) of a matrix; it is rounded to bf16 where it is stored.
BATON_BOTH float random_weight(std::uint64_t seed, std::uint64_t index, float deviation) {
  return deviation * normal(scrambled(seed + index));
}

}  // namespace baton
