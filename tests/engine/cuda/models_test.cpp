// Whole models on the CUDA backend, native memory: compiled once for the emulated kernels and once for a GPU.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/tiny_model.h"

namespace baton::test {
namespace {

// In fp32 the two differ in the order of sums only (seen: 7e-7). In bf16 the input of each of a layer's four products
// is rounded, 2^-9 of its size on average, and so are queries and weights of attention; two to three layers follow each
// other: about 1 % (seen: 0.5 to 1.3 %). A row that sees one key too few is off by 30 % and more.
constexpr double kFloatTolerance = 1e-5, kBf16Tolerance = 0.02;

TEST_CASE("a model on the kernels agrees with the scalar oracle", "[forward]") {
  const auto cuda = make_backend_under_test();
  if (cuda == nullptr) return;
  const auto reference = make_reference_backend();
  const auto tokens = random_tokens(80, 3);
  for (const TinyOptions& options :
       {TinyOptions{.heads = 6, .kv_heads = 2, .head_dim = 32},
        TinyOptions{
            .layers = 2, .heads = 4, .kv_heads = 4, .head_dim = 64, .window = 40, .qk_norm = true, .bias = true},
        TinyOptions{.layers = 2, .width = 50, .window = 9, .bias = true},  // a width without tiles, padded rows
        TinyOptions{.window = 40, .qk_norm = true, .dtype = DType::f32, .kv_dtype = DType::f32}}) {
    const bool wide = options.dtype == DType::f32;
    const auto expected = logits_of(*reference, options, tokens, tokens.size());
    for (const std::size_t chunk : {tokens.size(), std::size_t{37}, std::size_t{9}}) {
      const auto actual = logits_of(*cuda, options, tokens, chunk);
      INFO("head width " << options.head_dim << ", " << name_of(options.dtype) << ", steps of " << chunk);
      CHECK(difference(actual, expected) < (wide ? kFloatTolerance : kBf16Tolerance));
    }
  }
}

}  // namespace
}  // namespace baton::test
