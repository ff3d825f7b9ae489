// SPDX-License-Identifier: Apache-2.0
#include <baton/baton.h>
#include <baton/lab/perplexity.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"

namespace perplexity_test {

using namespace baton;
using namespace baton::lab;

namespace {

const std::string kNano = BATON_SOURCE_DIR "/samples/models/nano";

std::string text() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "Mia has " + std::to_string(12 + 5 * i) + " apples. She buys " + std::to_string(7 + i) +
            " more apples. How many apples does Mia have?\n";
  }
  return text;
}

/// The negative log-likelihoods that count, one token a step: the sum of exponentials as it is written.
std::vector<long double> likelihoods(DType dtype, const std::string& text, std::size_t context) {
  const auto backend = make_cpu_backend(1);
  ModelOptions options;
  options.dtype = options.kv_dtype = dtype;
  const auto model = open_model(*backend, kNano, options);
  const std::vector<TokenId> ids = model->tokenizer->encode(text, SpecialTokens::as_text);
  REQUIRE(ids == model->tokenizer->encode_with_template(text));  // nano adds no BOS
  std::vector<long double> all;
  for (std::size_t begin = 0; begin + context <= ids.size(); begin += context) {
    Forward forward(*backend, *model);
    KvCache cache(*backend, model->kv_layout(), static_cast<std::int32_t>(context));
    for (std::size_t at = 0; at + 1 < context; ++at) {
      StepRows rows;
      rows.add_row(rows.add_cache(&cache), static_cast<std::int32_t>(at), ids[begin + at]);
      rows.logits_rows.push_back(0);
      const auto logits = forward.run(rows);
      cache.commit(static_cast<std::int32_t>(at) + 1);
      if (at < context / 2) continue;
      long double sum = 0;
      for (const float value : logits) sum += std::exp(static_cast<long double>(value));
      all.push_back(std::log(sum) - logits[static_cast<std::size_t>(ids[begin + at + 1])]);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("perplexity: the value is that of the logits of single tokens") {
  for (const auto& [name, dtype] : {std::pair{"bf16", DType::bf16}, {"f32", DType::f32}}) {
    for (const int context : {4, 33, 128}) {
      CAPTURE(name, context);
      const auto all = likelihoods(dtype, text(), static_cast<std::size_t>(context));
      REQUIRE(all.size() > 1);
      long double sum = 0, spread = 0;
      for (const long double one : all) sum += one;
      const long double n = static_cast<long double>(all.size()), mean = sum / n;
      for (const long double one : all) spread += (one - mean) * (one - mean);
      PerplexityOptions options;
      options.model = kNano;
      options.text = text();
      options.dtype = name;
      options.context = context;
      options.threads = 1;
      const auto found = measure_perplexity(options);
      REQUIRE(found);
      CHECK(found->scored == static_cast<std::int64_t>(all.size()));
      CHECK(found->scored == found->chunks * (context - 1 - context / 2));
      CHECK(found->nll == Approx(static_cast<double>(mean)).epsilon(1e-10));
      CHECK(found->perplexity == Approx(std::exp(static_cast<double>(mean))).epsilon(1e-10));
      CHECK(found->error ==
            Approx(found->perplexity * std::sqrt(static_cast<double>(spread / n / (n - 1)))).epsilon(1e-6));
      CHECK_FALSE(found->begins_with_bos);
    }
  }
}

TEST_CASE("perplexity: chunks, progress and stopping") {
  PerplexityOptions options;
  options.model = kNano;
  options.text = text();
  options.context = 64;
  options.chunks = 3;
  options.threads = 1;
  std::vector<double> seen;
  options.on_chunk = [&](std::int64_t done, std::int64_t chunks, double perplexity) {
    seen.push_back(perplexity);
    CHECK(done == static_cast<std::int64_t>(seen.size()));
    CHECK(chunks == 3);
  };
  const auto three = measure_perplexity(options);
  REQUIRE(three);
  CHECK(three->chunks == 3);
  REQUIRE(seen.size() == 3);
  CHECK(seen.back() == three->perplexity);

  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_chunk = [&](std::int64_t, std::int64_t, double) { stop.request_stop(); };
  const auto one = measure_perplexity(options);
  REQUIRE(one);
  CHECK(one->chunks == 1);
  CHECK(one->perplexity == seen.front());
  CHECK_FALSE(measure_perplexity(options));  // stopped before it began
}

TEST_CASE("perplexity: options that cannot be") {
  const auto refusal = [](auto change) {
    PerplexityOptions options;
    options.model = kNano;
    options.text = text();
    change(options);
    try {
      measure_perplexity(options);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal([](auto& o) { o.context = 3; }).find("context: expected 4 or more, found 3") == 0);
  CHECK(refusal([](auto& o) { o.context = 1 << 20; }).find("context: 1048576 tokens; the model's") == 0);
  CHECK(refusal([](auto& o) { o.chunks = -1; }).find("chunks: ") == 0);
  CHECK(refusal([](auto& o) { o.dtype = "f8"; }).find("dtype: expected bf16 or f32, found 'f8'") == 0);
  CHECK(refusal([](auto& o) { o.activations = "f8"; }).find("activations: unknown value 'f8'; expected one of f32, ") ==
        0);
  CHECK(refusal([](auto& o) {
          o.dtype = "f32";
          o.activations = "bf16";
        }).find("activations: bf16 has no effect with dtype f32; expected dtype bf16") == 0);
  CHECK(refusal([](auto& o) { o.text = "too short"; }).find("text: expected 512 tokens or more, one chunk") == 0);
  CHECK(refusal([](auto& o) { o.text.clear(); }).find("text: ") == 0);
  PerplexityOptions options;
  options.model = "no-such-model";
  CHECK_THROWS_AS(measure_perplexity(options), ResourceError);
}

TEST_CASE("perplexity: bytes that are no UTF-8 are measured like U+FFFD") {
  PerplexityOptions options;
  options.model = kNano;
  options.context = 8;
  options.threads = 1;
  for (int i = 0; i < 40; ++i) options.text += "\xff\xfe";
  const auto broken = measure_perplexity(options);
  REQUIRE(broken);
  CHECK(std::isfinite(broken->perplexity));
}

}  // namespace perplexity_test
