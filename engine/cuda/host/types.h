// SPDX-License-Identifier: Apache-2.0
// The few types that host code and kernels share. No CUDA header: host logic is tested where there is no toolkit.
#pragma once

#include <cstdint>

namespace baton::cuda {

/// A bf16 as stored; arithmetic is in float.
struct Bf16 {
  std::uint16_t bits;
};

class LaunchLog;

/// Where launches go: a stream of the device, cudaStream_t underneath; or, where there is a log, into it alone.
struct Stream {
  void* native = nullptr;
  LaunchLog* log = nullptr;
};

/// Keys of one block in attention's tiles: kKeyBlock.
inline constexpr int kTileKeys = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::int64_t blocks_of(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace baton::cuda
