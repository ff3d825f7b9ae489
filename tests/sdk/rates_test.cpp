// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "engine/cpu/cpu.h"
#include "sdk/src/internal.h"
#include "tests/support/tiny_model.h"

namespace rates_test {

using namespace baton;
using namespace baton::test;

TEST_CASE("rates are measured of models with every kind of layer", "[rates]") {
  const std::pair<const char*, TinyOptions> models[] = {
      {"attention", {}},
      {"short convolutions", hybrid_tiny(LayerKind::short_convolution)},
      {"gated delta nets", hybrid_tiny(LayerKind::delta_net)},
      {"Mamba2", hybrid_tiny(LayerKind::mamba2)},
      {"attention and Mamba2 in one layer", hybrid_tiny(LayerKind::parallel)},
  };
  for (const auto& [name, options] : models) {
    INFO(name);
    const auto backend = make_cpu_backend(1);
    const auto model = make_tiny_model(*backend, options);
    RatesToMeasure what;
    what.prefill = {24};
    what.decode = {{2, 24}, {1, 10}, {1, 40}};  // as deep as the prompt, less, and more
    what.go_on = [](const std::string&) { return true; };
    std::vector<PrefillRate> prefill;
    std::vector<DecodeRate> decode;
    measure_rates(prefill, decode, *backend, *model, what);
    REQUIRE(prefill.size() == 1);
    CHECK(prefill[0].tokens_per_s > 0);
    REQUIRE(decode.size() == 3);
    for (const DecodeRate& rate : decode) CHECK(rate.tokens_per_s > 0);
    CHECK_FALSE(measure_row_costs(*backend, *model, [] { return false; }).steps.empty());
  }
}

}  // namespace rates_test
