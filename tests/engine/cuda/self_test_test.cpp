// SPDX-License-Identifier: Apache-2.0
// The self-test of `baton doctor --device cuda`.
#include "tests/support/self_test.h"

#include <catch2/catch.hpp>

#include "tests/engine/cuda/models.h"

namespace baton::test::self_test_test {
namespace {

TEST_CASE("the self-test finds nothing wrong with the device") {
  const auto device = make_backend_under_test();
  if (device == nullptr) return;
  std::size_t parts = 0;
  CHECK(self_test_problems(*device, parts) == std::vector<std::string>{});
  CHECK(parts == kSelfTestParts);
}

}  // namespace
}  // namespace baton::test::self_test_test
