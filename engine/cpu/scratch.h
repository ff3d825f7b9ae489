// SPDX-License-Identifier: Apache-2.0
// Scratch: working memory of the kernels. It grows to the largest call so far; smaller calls do not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

  /// Returns at least `count` floats, aligned to a cache line, for data that the caller prepares and all tasks read.
  /// Valid until the next call.
  float* shared(std::int64_t count) { return grown(shared_, count); }

  /// The same, for a second array.
  float* operand(std::int64_t count) { return grown(operand_, count); }

 private:
  static constexpr std::size_t kLine = 64;  // bytes

  static float* grown(std::vector<float>& floats, std::int64_t count) {
    const auto needed = static_cast<std::size_t>(count) + kLine / sizeof(float);
    if (floats.size() < needed) floats.resize(needed);
    void* data = floats.data();
    std::size_t bytes = floats.size() * sizeof(float);
    return static_cast<float*>(std::align(kLine, static_cast<std::size_t>(count) * sizeof(float), data, bytes));
  }

  Buffer memory_;
  std::vector<float> shared_, operand_;
};

}  // namespace baton::cpu
