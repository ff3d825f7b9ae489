// SPDX-License-Identifier: Apache-2.0
// Multiply-add with one rounding, on every platform: the C library of MinGW-w64 rounds twice in std::fma.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace baton {

/// The same as fused(), in double precision without any function of the C library. A product of two floats is exact in
/// double; the sum with c is rounded to odd there, so that the rounding to float sees on which side of a tie it was
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
inline float fused_in_double(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);  // sum + error is exact (Knuth's TwoSum)
  if (error == 0 || !std::isfinite(sum)) return static_cast<float>(sum);
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if ((bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : static_cast<std::uint64_t>(-1);
  return static_cast<float>(std::bit_cast<double>(bits));
}

/// a * b + c, rounded once.
inline float fused(float a, float b, float c) {
#if defined(__MINGW32__) && !defined(__FMA__)
  return fused_in_double(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace baton
