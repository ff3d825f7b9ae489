// SPDX-License-Identifier: Apache-2.0
// Scratch: working memory of the kernels. It grows to the largest call seen and is then never allocated again.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor/buffer.h"

namespace baton::cpu {

/// Floats each thread may use within one task.
inline constexpr std::int64_t kThreadFloats = 160 * 1024;

class Scratch {
 public:
  /// `threads` memory areas of kThreadFloats floats, from `owner`, which outlives the scratch.
  template <class Owner>
  Scratch(Owner& owner, int threads) : memory_(owner.allocate(threads * kThreadFloats * sizeof(float))) {}

  float* of_thread(int thread) const { return reinterpret_cast<float*>(memory_.data()) + thread * kThreadFloats; }

  /// At least `count` floats, for what the caller prepares and all tasks read.
  float* shared(std::int64_t count) {
    if (static_cast<std::int64_t>(shared_.size()) < count) shared_.resize(static_cast<std::size_t>(count));
    return shared_.data();
  }

 private:
  Buffer memory_;
  std::vector<float> shared_;
};

}  // namespace baton::cpu
