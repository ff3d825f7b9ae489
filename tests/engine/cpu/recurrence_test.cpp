// SPDX-License-Identifier: Apache-2.0
// Columns of a state depend on nothing but themselves: a column alone has the bits that it has among others, on every
// instruction set.
#include "engine/cpu/recurrence.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tests/engine/cpu/targets.h"
#include "tests/engine/ops/fixtures.h"

namespace baton::test::cpu_recurrence_test {
namespace {

using namespace baton::cpu;

constexpr std::int64_t kColumns = 70, kRows = 9;

/// Runs a kernel over all columns at once and over each alone: run(out, state, first column, columns).
void compare(const std::function<void(float* out, float* state, std::int64_t first, std::int64_t n)>& run) {
  std::vector<float> out(kColumns, 0.0f), state(kRows * kColumns, 0.0f), single(out), single_state(state);
  for (int step = 0; step < 3; ++step) {
    run(out.data(), state.data(), 0, kColumns);
    for (std::int64_t column = 0; column < kColumns; ++column)
      run(single.data() + column, single_state.data() + column, column, 1);
    require_same_bits(single, out);
    require_same_bits(single_state, state);
  }
}

void for_each_target(const std::function<void()>& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    INFO(hwy::TargetName(target));
    body();
  }
}

TEST_CASE("a column of the delta rule does not depend on its neighbours") {
  for_each_target([] {
    Random random(1);
    const std::vector<float> q = random.vector(kRows), k = random.vector(kRows), v = random.vector(kColumns);
    compare([&](float* out, float* state, std::int64_t first, std::int64_t n) {
      const DeltaStep step{state, state, q.data(), k.data(), v.data() + first, 0.9f, 0.4f, kRows, kColumns};
      delta_row(out, step, n);
    });
  });
}

TEST_CASE("a column of the scan does not depend on its neighbours") {
  for_each_target([] {
    Random random(2);
    const std::vector<float> b = random.vector(kRows), c = random.vector(kRows), x = random.vector(kColumns);
    compare([&](float* out, float* state, std::int64_t first, std::int64_t n) {
      const ScanStep step{state, state, x.data() + first, b.data(), c.data(), 0.9f, 0.4f, 1.1f, kRows, kColumns};
      scan_row(out, step, n);
    });
  });
}

TEST_CASE("a column of the convolution does not depend on its neighbours") {
  for_each_target([] {
    Random random(3);
    const std::vector<float> taps = random.vector(kRows * kColumns), x = random.vector(kRows * kColumns);
    compare([&](float* out, float* /*state*/, std::int64_t first, std::int64_t n) {
      std::vector<const float*> inputs;
      for (std::int64_t j = 0; j < kRows; ++j) inputs.push_back(x.data() + j * kColumns + first);
      const ConvStep step{inputs.data(), taps.data() + first, nullptr, kRows, true, kColumns};
      convolve_row(out, step, n);
    });
  });
}

}  // namespace
}  // namespace baton::test::cpu_recurrence_test
