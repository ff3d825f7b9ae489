// SPDX-License-Identifier: Apache-2.0
// Types that host code and kernels share. It includes no CUDA header, so that host code is tested without the toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

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

// LaunchLog: everything that an engine step would do on the device, as bytes: every launch with its kernel, grid and
// arguments, and every product. Two steps with equal logs do the same work in the same memory, so the second can be a
// replay of the first (docs/decisions/cuda.md).

class LaunchLog {
 public:
  void clear() { used_ = 0; }
  /// Appends the values' bytes. Types should have no padding: different padding counts as different work, which is slow
  /// but never wrong.
  template <class... Values>
  void add(const Values&... values) {
    static_assert((std::is_trivially_copyable_v<Values> && ...));
    constexpr std::size_t kSize = (sizeof(Values) + ...);
    if (used_ + kSize > bytes_.size()) bytes_.resize(2 * bytes_.size() + kSize);
    std::byte* to = bytes_.data() + used_;
    ((std::memcpy(to, &values, sizeof(Values)), to += sizeof(Values)), ...);
    used_ += kSize;
  }
  std::span<const std::byte> bytes() const { return {bytes_.data(), used_}; }

 private:
  std::vector<std::byte> bytes_;  // the first used_ are the log
  std::size_t used_ = 0;
};

}  // namespace baton::cuda
