// What a piece of a step would do on the device, as bytes: every launch with its kernel, grid and arguments, every
// product. Two pieces with equal logs do the same work in the same memory, so the second can be a replay of the first
// (docs/decisions/0017-replayed-steps.md).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace baton::cuda {

class LaunchLog {
 public:
  void clear() { bytes_.clear(); }
  /// Arguments without padding, or with padding that is always the same: what differs there counts as different work,
  /// which is slow and never wrong.
  template <class... Values>
  void add(const Values&... values) {
    (append(values), ...);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class Value>
  void append(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Value));
    std::memcpy(bytes_.data() + at, &value, sizeof(Value));
  }

  std::vector<std::byte> bytes_;
};

}  // namespace baton::cuda
