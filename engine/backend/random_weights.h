// SPDX-License-Identifier: Apache-2.0
// Random weights that are a function of a seed and the weight's place, so that any number of threads, and a device,
// make the same ones.
#pragma once

#include <cstdint>

#include "engine/base/random.h"

namespace baton {

/// SplitMix64: a counter becomes 64 random bits.
BATON_BOTH std::uint64_t scrambled(std::uint64_t counter) { return mixed_bits(counter * kSplitMixStep); }

/// Nearly normal, deviation 1: the sum of four uniform numbers of 16 bits.
BATON_BOTH float normal(std::uint64_t bits) {
  const auto sum =
      static_cast<std::int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  const float deviation_of_sum = 37837.23f;  // 65536 / sqrt(3)
  return static_cast<float>(sum - 2 * 0xffff) / deviation_of_sum;
}

/// Weight `place` (row * columns + column) of a matrix; its value is rounded to bf16 where it is kept.
BATON_BOTH float random_weight(std::uint64_t seed, std::uint64_t place, float deviation) {
  return deviation * normal(scrambled(seed + place));
}

}  // namespace baton
