// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/self_test.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"

namespace baton::test {
namespace {

TEST_CASE("a device that computes what the CPU does passes the self-test") {
  const auto one = make_cpu_backend(2), other = make_cpu_backend(1);
  int parts = 0;
  run_self_test(*one, *other, [&](const SelfTestPart& part) {
    INFO(part.name << ": " << part.problem);
    CHECK(part.problem.empty());
    ++parts;
  });
  CHECK(parts == 19);
}

}  // namespace
}  // namespace baton::test
