// SPDX-License-Identifier: Apache-2.0
#include "engine/base/units/numbers.h"

#include <catch2/catch.hpp>
#include <vector>

namespace overflow_test {

using namespace baton;

TEST_CASE("sums, differences and products that do not fit are noticed, as the compiler's own functions notice them") {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(), kMax = -(kMin + 1);
  std::vector<std::int64_t> values;
  for (const std::int64_t centre : {std::int64_t{0}, kMin, kMax, kMin / 2, kMax / 2, std::int64_t{3'037'000'499}}) {
    for (std::int64_t by = -3; by <= 3; ++by) {
      std::int64_t value = 0;
      if (!__builtin_add_overflow(centre, by, &value)) values.push_back(value);
    }
  }
  for (const std::int64_t a : values) {
    for (const std::int64_t b : values) {
      INFO(a << " and " << b);
      std::int64_t out = 0, expected = 0;
      CHECK(add_overflows(a, b, out) == __builtin_add_overflow(a, b, &expected));
      CHECK(out == expected);
      CHECK(subtract_overflows(a, b, out) == __builtin_sub_overflow(a, b, &expected));
      CHECK(out == expected);
      CHECK(multiply_overflows(a, b, out) == __builtin_mul_overflow(a, b, &expected));
      CHECK(out == expected);
    }
  }
}

}  // namespace overflow_test
