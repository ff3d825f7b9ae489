// SPDX-License-Identifier: Apache-2.0
#include "tests/support/self_test.h"

#include <catch2/catch.hpp>

namespace baton::test::self_test_test {
namespace {

TEST_CASE("a device that computes what the CPU does passes the self-test") {
  std::size_t parts = 0;
  CHECK(self_test_problems(*make_cpu_backend(2), parts) == std::vector<std::string>{});
  CHECK(parts == kSelfTestParts);
}

}  // namespace
}  // namespace baton::test::self_test_test
