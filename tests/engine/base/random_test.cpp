// SPDX-License-Identifier: Apache-2.0
#include "engine/base/random.h"

#include <catch2/catch.hpp>

namespace random_test {

using namespace baton;

TEST_CASE("splitmix64 gives the numbers of its reference implementation") {
  std::uint64_t state = 1234567;
  CHECK(next_random(state) == 6457827717110365317u);
  CHECK(next_random(state) == 3203168211198807973u);
  CHECK(next_random(state) == 9817491932198370423u);
  std::uint64_t zero = 0;
  CHECK(next_random(zero) == 0xe220a8397b1dcdafu);
}

TEST_CASE("uniform numbers are the high bits of the random ones, below 1") {
  std::uint64_t state = 1234567, same = 1234567;
  for (int i = 0; i < 1000; ++i) {
    const double uniform = next_uniform(state);
    CHECK(uniform == static_cast<double>(next_random(same) >> 11) / 9007199254740992.0);
    CHECK(uniform < 1.0);
  }
}

}  // namespace random_test
