// SPDX-License-Identifier: Apache-2.0
// Arithmetic that says when its result does not fit, in any compiler.
#pragma once

#include <cstdint>
#include <limits>

namespace baton {

// out = a + b, a - b or a * b modulo 2^64; true when that is not the result.

inline bool add_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  return ((a ^ out) & (b ^ out)) < 0;
}

inline bool subtract_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  return ((a ^ b) & (a ^ out)) < 0;
}

inline bool multiply_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  if (a == -1 || b == -1) return (a == -1 ? b : a) == kMin;
  return b != 0 && out / b != a;
}

}  // namespace baton
