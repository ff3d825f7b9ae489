// SPDX-License-Identifier: Apache-2.0
// The self-test of `baton doctor --device cuda`.
#include "engine/backend/self_test.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"
#include "tests/engine/cuda/models.h"

namespace baton::test {
namespace {

TEST_CASE("the self-test finds nothing wrong with the device") {
  const auto device = make_backend_under_test();
  if (device == nullptr) return;
  const auto cpu = make_cpu_backend(1);
  int parts = 0;
  run_self_test(*device, *cpu, [&](const SelfTestPart& part) {
    INFO(part.name << ": " << part.problem);
    CHECK(part.problem.empty());
    ++parts;
  });
  CHECK(parts == 19);
}

}  // namespace
}  // namespace baton::test
