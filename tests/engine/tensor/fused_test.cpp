// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/tensor.h"

#include <catch2/catch.hpp>
#include <limits>
#include <tuple>

#include "engine/base/random.h"

namespace baton {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// A random whole number of `width` bits at most, in which few bits are set: sums of those are often near to a tie.
std::int64_t sparse_bits(std::uint64_t& random, int width) {
  const std::uint64_t mask = next_random(random) & next_random(random) & next_random(random);
  return static_cast<std::int64_t>(mask & ((std::uint64_t{1} << width) - 1));
}

}  // namespace

TEST_CASE("a fused multiply-add is rounded once") {
  struct Case {
    float a, b, c, expected;
  };
  constexpr float kMax = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {3, 5, 7, 22},
      // 1 + 2^-11 + 2^-24 is in the middle of two floats. What is added decides, and no double holds the sum.
      {0x1.001p0f, 0x1.001p0f, 0x1p-80f, 0x1.002002p0f},
      {0x1.001p0f, 0x1.001p0f, -0x1p-80f, 0x1.002p0f},
      {0x1.001p0f, 0x1.001p0f, 0, 0x1.002p0f},
      {-0x1.001p0f, 0x1.001p0f, -0x1p-80f, -0x1.002002p0f},
      {-0x1.001p0f, 0x1.001p0f, 0x1p-80f, -0x1.002p0f},
      // The product is the small one: 1 + 2^-23 + 2^-24 less or more a little.
      {0x1p-24f, 0x1.000002p0f, 0x1.000002p0f, 0x1.000004p0f},
      {0x1p-24f, 0x1.fffffep-1f, 0x1.000002p0f, 0x1.000002p0f},
      // What a rounded product loses: (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24.
      {0x1.001p0f, 0x1.001p0f, -0x1.002p0f, 0x1p-24f},
      // Below the normal numbers, whose step is 2^-149.
      {0x1p-75f, 0x1p-75f, 0, 0},
      {0x1p-75f, 0x1.000002p-75f, 0, 0x1p-149f},
      {0x1p-75f, 0x1p-75f, 0x1p-149f, 0x1p-148f},
      {0x1p-75f, 0x1.fffffep-76f, 0x1p-149f, 0x1p-149f},
      {0x1p-126f, 0x1p-126f, 0x1p-126f, 0x1p-126f},
      // At the end of the range: no product overflows by itself.
      {kMax, 2, -kMax, kMax},
      {kMax, 1, kMax, kInfinity},
      {kMax, 1, 0x1.fffffep102f, kMax},
      {kMax, 1, 0x1p103f, kInfinity},
      {kInfinity, 1, 5, kInfinity},
      {2, 3, -kInfinity, -kInfinity},
      {-1, 0, 0, 0},
      {-1, 0, -0.0f, -0.0f},
  };
  for (const Case& one : cases) {
    INFO(one.a << " * " << one.b << " + " << one.c);
    CHECK(bits_of(fused(one.a, one.b, one.c)) == bits_of(one.expected));
    CHECK(bits_of(fused_in_double(one.a, one.b, one.c)) == bits_of(one.expected));
  }
  for (const auto& [a, b, c] : {std::tuple{kInfinity, 0.0f, 1.0f}, {kInfinity, 1.0f, -kInfinity}}) {
    CHECK(std::isnan(fused(a, b, c)));
    CHECK(std::isnan(fused_in_double(a, b, c)));
  }
}

TEST_CASE("a fused multiply-add is a sum of whole numbers, rounded") {
  std::uint64_t random = 91;
  int hard = 0;
  const auto check = [&](std::int64_t a, std::int64_t b, std::int64_t addend) {
    const auto x = static_cast<float>(a), y = static_cast<float>(b), z = static_cast<float>(addend);
    const auto expected = static_cast<float>(a * b + addend);
    hard += static_cast<float>(static_cast<double>(a * b) + static_cast<double>(addend)) != expected;
    REQUIRE(bits_of(fused(x, y, z)) == bits_of(expected));
    REQUIRE(bits_of(fused_in_double(x, y, z)) == bits_of(expected));
  };
  for (int i = 0; i < 100'000; ++i) {
    const std::int64_t a = sparse_bits(random, 24), b = sparse_bits(random, 24), c = sparse_bits(random, 24);
    const std::uint64_t shifts = next_random(random);
    check(a << (shifts % 14), b, (shifts % 1024 < 512 ? c : -c) << ((shifts >> 10) % 39));
  }
  // Half a step of the addend, less 2 * i * i: a double rounds that to the half.
  for (int k = 0; k < 1000; ++k) {
    const auto steps = static_cast<std::int64_t>((next_random(random) | (std::uint64_t{1} << 63)) >> 40);
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::int64_t a = (1 << 18) + i, b = (1 << 19) - 2 * i;
      check(a, b, steps << 38);
      check(-a, b, steps << 38);
      check(a, b, -steps << 38);
      check(-a, b, -steps << 38);
    }
  }
  CHECK(hard > 10'000);  // of these a sum in double alone is wrong
}

}  // namespace baton
