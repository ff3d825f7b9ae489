// SPDX-License-Identifier: Apache-2.0
// A whole step is free of races between barriers: any order of threads gives the same bits.
#include <catch2/catch.hpp>

#include "tests/engine/cuda/models.h"
#include "tests/support/simt/emulated_backend.h"

namespace baton::test::orders_test {
namespace {

TEST_CASE("a step on the emulated kernels has the same bits in every order of threads", "[forward]") {
  const auto emulated = make_emulated_backend();
  const auto tokens = random_tokens(70, 4);
  const TinyOptions options{.layers = 2, .heads = 6, .kv_heads = 2, .head_dim = 32, .qk_norm = true, .bias = true};
  const auto expected = logits_of(*emulated, options, tokens, 30);
  for (const std::uint32_t seed : {1u, 2u}) {
    const InOrder only(simt::Order::random, seed);
    CHECK(logits_of(*emulated, options, tokens, 30) == expected);
  }
  const InOrder only(simt::Order::descending);
  CHECK(logits_of(*emulated, options, tokens, 30) == expected);
}

}  // namespace
}  // namespace baton::test::orders_test
