// SPDX-License-Identifier: Apache-2.0
// SplitMix64 (Steele, Lea, Flood 2014): the same random numbers with every standard library, on the host and on a
// device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BATON_BOTH __host__ __device__ inline
#else
#define BATON_BOTH inline
#endif

namespace baton {

inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;  // the golden ratio in 64 bits

/// The finaliser: every bit of the result depends on every bit of `z`.
BATON_BOTH std::uint64_t mixed_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Advances the state and returns 64 random bits. Any initial state is valid.
BATON_BOTH std::uint64_t next_random(std::uint64_t& state) { return mixed_bits(state += kSplitMixStep); }

/// Advances the state and returns a random number in [0, 1) of 53 bits.
inline double next_uniform(std::uint64_t& state) { return static_cast<double>(next_random(state) >> 11) * 0x1p-53; }

}  // namespace baton

// Support for the few functions whose bits must be equal on the host and in a kernel: one source is compiled for both.
