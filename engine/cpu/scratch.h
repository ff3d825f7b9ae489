// SPDX-License-Identifier: Apache-2.0
// Scratch: working memory of the kernels. It grows to the largest call so far; smaller calls do not allocate.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor/buffer.h"

namespace baton::cpu {

/// The number of floats that each thread may use within one task.
inline constexpr std::int64_t kThreadFloats = 160 * 1024;

class Scratch {
 public:
  /// Allocates kThreadFloats floats for each of `threads` threads from `owner`, which must outlive the scratch.
  template <class Owner>
  Scratch(Owner& owner, int threads) : memory_(owner.allocate(threads * kThreadFloats * sizeof(float))) {}

  float* of_thread(int thread) const { return reinterpret_cast<float*>(memory_.data()) + thread * kThreadFloats; }

  /// Returns at least `count` floats for data that the caller prepares and all tasks read. Valid until the next call.
  float* shared(std::int64_t count) {
    if (static_cast<std::int64_t>(shared_.size()) < count) shared_.resize(static_cast<std::size_t>(count));
    return shared_.data();
  }

  /// The same, for a second array.
  float* operand(std::int64_t count) {
    if (static_cast<std::int64_t>(operand_.size()) < count) operand_.resize(static_cast<std::size_t>(count));
    return operand_.data();
  }

 private:
  Buffer memory_;
  std::vector<float> shared_, operand_;
};

}  // namespace baton::cpu
