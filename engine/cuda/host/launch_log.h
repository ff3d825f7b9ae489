// SPDX-License-Identifier: Apache-2.0
// What a piece of a step would do on the device, as bytes: every launch with its kernel, grid and arguments, every
// product. Two pieces with equal logs do the same work in the same memory, so the second can be a replay of the first
// (docs/decisions/0017-replayed-steps.md).
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
  /// Arguments without padding, or with padding that is always the same: what differs there counts as different work,
  /// which is slow and never wrong.
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
  std::vector<std::byte> bytes_;  // room
  std::size_t used_ = 0;
};

}  // namespace baton::cuda
