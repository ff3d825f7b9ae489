// SPDX-License-Identifier: Apache-2.0
// What only the CPU's backends refuse; what all refuse is in tests/engine/ops.
#include "tests/engine/ops/fixtures.h"

namespace baton::test::inputs_test {
namespace {

TEST_CASE("a matrix of another backend is refused") {
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(1);
  const Values w(2, 2, 1), x(1, 2, 1);
  Values out(1, 2);
  REQUIRE_THROWS_AS(cpu->matmul(out.view(), x.view(), *load(*reference, w, DType::f32), {}), std::invalid_argument);
  REQUIRE_THROWS_AS(reference->matmul(out.view(), x.view(), *load(*cpu, w, DType::f32), {}), std::invalid_argument);
}

TEST_CASE("the number of threads") {
  REQUIRE(make_cpu_backend(0)->info().threads >= 1);
  REQUIRE(make_cpu_backend(3)->info().threads == 3);
  REQUIRE_THROWS_AS(make_cpu_backend(-1), std::invalid_argument);
}

}  // namespace
}  // namespace baton::test::inputs_test
