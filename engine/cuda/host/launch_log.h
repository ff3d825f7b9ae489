// SPDX-License-Identifier: Apache-2.0
// LaunchLog: everything that an engine step would do on the device, as bytes: every launch with its kernel, grid and
// arguments, and every product. Two steps with equal logs do the same work in the same memory, so the second can be a
// replay of the first (docs/decisions/cuda.md).
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace baton::cuda {

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
