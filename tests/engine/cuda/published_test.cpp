// SPDX-License-Identifier: Apache-2.0
// Published models on the CUDA backend: the GGUF files in the folder that BATON_TEST_MODELS names answer as on the CPU.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "tests/engine/cuda/models.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> published() {
  std::vector<fs::path> models;
  if (const char* folder = std::getenv("BATON_TEST_MODELS")) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf" && is_model(entry.path())) models.push_back(entry.path());
    }
  }
  std::ranges::sort(models, {}, [](const fs::path& path) { return fs::file_size(path); });
  if (models.empty()) std::printf("SKIPPED: BATON_TEST_MODELS names no folder with .gguf files\n");
  return models;
}

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

// The device adds in another order and rounds queries and attention's weights to bf16. Where that moves an activation
// from one code to the next, it moves by a whole code: on the CPU, a KV cache in f32 instead of bf16 moves the logits
// as far (0.091 of their size on SmolLM2-135M, 0.015 on Qwen2.5-Coder-0.5B, whose sixth token it changes).
TEST_CASE("published: models answer on the kernels as on the CPU", "[published-device]") {
  constexpr std::size_t kTokens = 24;
  for (const fs::path& path : published()) {
    auto device = make_backend_under_test();
    if (device == nullptr) return;
    INFO(path.filename().string());
    const std::string text = "The three largest cities of Germany are";
    const auto cpu = make_cpu_backend(2);
    const Continuation expected = continued(*cpu, path, text, kTokens, {});
    const Continuation exact = continued(*cpu, path, text, kTokens, expected.tokens, DType::f32);
    const Continuation actual = continued(*device, path, text, kTokens, expected.tokens);
    const auto parted = std::ranges::mismatch(actual.tokens, expected.tokens).in1 - actual.tokens.begin();
    const double moved = largest_difference(actual, expected), rounded = largest_difference(expected, exact);
    std::printf("%s: the first %td of %zu tokens are equal; logits differ by %.4f, from activations in f32 by %.4f\n",
                path.filename().c_str(), parted, kTokens, moved, rounded);
    CHECK(parted > 0);
    CHECK(moved < 2 * rounded);
  }
}

}  // namespace
}  // namespace baton::test
