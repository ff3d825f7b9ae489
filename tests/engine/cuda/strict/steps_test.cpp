// SPDX-License-Identifier: Apache-2.0
// What a decode step asks of the CUDA runtime, counted.
#include <catch2/catch.hpp>

#include "engine/cuda/host/cuda.h"
#include "tests/engine/cuda/steps.h"
#include "tests/support/strict/strict.h"

namespace baton::test::steps_test {
namespace {

std::uint64_t calls_of(const std::string& name) {
  const auto found = strict::calls().find(name);
  return found == strict::calls().end() ? 0 : found->second;
}

const TinyOptions kTiny{.layers = 2, .width = 32, .heads = 2, .kv_heads = 1, .ffn_width = 32, .bias = true};
const std::vector<TokenChoice> kGreedy(1);

TEST_CASE("a decode step is one graph, five small uploads and one wait for the token", "[steps]") {
  Steps steps(make_cuda_backend(0), kTiny, 1, false);
  steps.run({10}, kGreedy, 1);
  for (int i = 0; i < 6; ++i) steps.run({1}, kGreedy, i);
  const std::map<std::string, std::uint64_t> before = strict::calls();
  constexpr std::uint64_t kSteps = 5;
  for (std::uint64_t i = 0; i < kSteps; ++i) steps.run({1}, kGreedy, static_cast<int>(20 + i));
  const auto of_a_step = [&](const std::string& name) {
    return static_cast<double>(calls_of(name) - (before.contains(name) ? before.at(name) : 0)) / kSteps;
  };
  CHECK(of_a_step("cudaGraphLaunch") == 1);
  CHECK(of_a_step("cudaLaunchKernel") == 0);
  CHECK(of_a_step("cudaMemcpyAsync") <= 6);  // the token is the sixth
  CHECK(of_a_step("cudaStreamSynchronize") == 1);
  CHECK(of_a_step("cudaEventSynchronize") == 1);  // of the step's times
}

TEST_CASE("products that were rehearsed are not measured in the first steps", "[steps]") {
  for (const bool rehearsed : {false, true}) {
    Steps steps(make_cuda_backend(0), kTiny, 1, false);
    if (rehearsed) steps.rehearse();
    const std::uint64_t plans = calls_of("cublasLtMatmulAlgoGetHeuristic");
    const std::uint64_t times = calls_of("cudaEventElapsedTime");
    for (const std::int32_t rows : {1, 4, 8}) steps.run({rows}, kGreedy, rows);
    const std::uint64_t own_times = 3 * 4;  // at most: of the parts of steps
    if (rehearsed) {
      CHECK(calls_of("cublasLtMatmulAlgoGetHeuristic") == plans);
      CHECK(calls_of("cudaEventElapsedTime") - times <= own_times);
    } else {
      CHECK(calls_of("cublasLtMatmulAlgoGetHeuristic") > plans);
      CHECK(calls_of("cudaEventElapsedTime") - times > own_times);
    }
  }
}

}  // namespace
}  // namespace baton::test::steps_test
