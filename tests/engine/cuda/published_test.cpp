// SPDX-License-Identifier: Apache-2.0
// Published models on the CUDA backend: the GGUF files in the folder that BATON_TEST_MODELS names answer as on the CPU.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/published_models.h"

namespace baton::test::published_test {
namespace {

namespace fs = std::filesystem;

struct Continuation {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
};

/// Continues a text with the token of the largest logit, `count` times or, where it is given, with other tokens.
Continuation continued(Backend& backend, const fs::path& path, const std::string& text, std::size_t count,
                       const std::vector<TokenId>& given, DType dtype = DType::bf16) {
  const auto model = open_model(backend, path, {.dtype = dtype});
  std::vector<TokenId> next = model->tokenizer->encode(text, SpecialTokens::as_text);
  KvCache cache(backend, model->kv_layout(), static_cast<std::int32_t>(next.size() + count));
  Forward forward(backend, *model);
  Continuation out;
  while (out.tokens.size() < count) {
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (std::size_t i = 0; i < next.size(); ++i) {
      rows.add_row(index, cache.length() + static_cast<std::int32_t>(i), next[i]);
    }
    rows.logits_rows.push_back(static_cast<std::int32_t>(next.size()) - 1);
    const auto logits = forward.run(rows);
    out.logits.emplace_back(logits.begin(), logits.end());
    cache.commit(cache.length() + static_cast<std::int32_t>(next.size()));
    const auto best = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    out.tokens.push_back(best);
    next = {given.empty() ? best : given[out.tokens.size() - 1]};
  }
  return out;
}

double largest_difference(const Continuation& a, const Continuation& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) worst = std::max(worst, difference(a.logits[i], b.logits[i]));
  return worst;
}

std::ptrdiff_t equal_tokens(const Continuation& a, const Continuation& b) {
  return std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin();
}

// The CPU multiplies with activations in 8 bits, or as they are (dtype f32): that is what the file's weights say. The
// device rounds activations, queries and attention's weights to bf16 and is to come nearer to it than 8 bits do.
TEST_CASE("published: models answer on the kernels as on the CPU", "[published-device]") {
  constexpr std::size_t kTokens = 8;
  for (const fs::path& path : published_models()) {
    auto device = make_backend_under_test();
    if (device == nullptr) return;
    INFO(path.filename().string());
    const std::string text = "The three largest cities of Germany are";
    const auto cpu = make_cpu_backend(2);
    const Continuation exact = continued(*cpu, path, text, kTokens, {}, DType::f32);
    const Continuation rounded = continued(*cpu, path, text, kTokens, exact.tokens);
    const Continuation actual = continued(*device, path, text, kTokens, exact.tokens);
    const double moved = largest_difference(actual, exact), limit = largest_difference(rounded, exact);
    std::printf(
        "%s: of %zu tokens the first %td are those of the CPU in f32, %td those in 8 bits; logits differ by %.4f"
        " (8 bits: %.4f)\n",
        path.filename().c_str(), kTokens, equal_tokens(actual, exact), equal_tokens(actual, rounded), moved, limit);
    CHECK(equal_tokens(actual, exact) > 0);
    CHECK(moved < limit);
  }
}

}  // namespace
}  // namespace baton::test::published_test
