// SPDX-License-Identifier: Apache-2.0
// Types that host code and kernels share. It includes no CUDA header, so that host code is tested without the toolkit.
#pragma once

#include <cstdint>

namespace baton::cuda {

/// The bits of a bf16; arithmetic is in float.
struct Bf16 {
  std::uint16_t bits;
};

class LaunchLog;

/// The target of launches: a stream of the device (a cudaStream_t), or, where `log` is not null, only that log.
struct Stream {
  void* native = nullptr;
  LaunchLog* log = nullptr;
};

/// The number of keys of one block in attention's tiles; equals kKeyBlock.
inline constexpr int kTileKeys = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::int64_t blocks_of(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace baton::cuda
