// SPDX-License-Identifier: Apache-2.0
// Draws from the project's own generator, so that a seed means the same team on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "engine/base/random.h"

namespace baton::test {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() { return next_random(state_); }
  /// [first, last]
  int between(int first, int last) {
    return first + static_cast<int>(bits() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool chance(double probability) { return next_uniform(state_) < probability; }

  template <typename Value>
  const Value& of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(bits() % values.size())];
  }
  template <typename Value>
  Value of(std::initializer_list<Value> values) {
    return values.begin()[bits() % values.size()];
  }

  template <typename Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[bits() % i]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace baton::test
