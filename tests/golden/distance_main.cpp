// SPDX-License-Identifier: Apache-2.0
// How far a model's predictions are from those of another computation of the same text, for
// tests/published/distance_peer.py:
//   baton_distance_check MODEL BASE WEIGHTS KV [ACTIVATIONS]   ->   {"chunks": 16, "kl": ..., "perplexity": ...}
// WEIGHTS, KV and ACTIVATIONS (of products with bf16 weights; f32 unless given) are bf16 or f32. BASE is what
// llama-perplexity writes with --kl-divergence-base: the text's ids in chunks, and for each position of a chunk's
// second half the log-probabilities of all tokens in steps of scale.
//   "_logits_" | i32 context, vocabulary, chunks | i32 ids[chunks][context]
//   for each chunk and position: f32 scale, f32 least | u16 steps[vocabulary, rounded up to even]
// Step 0 stands for everything below the 16 nats that are written: such tokens are left out of the divergence.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"

namespace {

class Base {
 public:
  explicit Base(const char* path) : file_(path, std::ios::binary) {
    char magic[8] = {};
    read(magic, 8);
    if (std::memcmp(magic, "_logits_", 8) != 0) throw std::runtime_error("the base does not begin with _logits_");
    std::int32_t sizes[3] = {};
    read(sizes, sizeof sizes);
    if (sizes[0] < 4 || sizes[0] > 1 << 20 || sizes[1] < 2 || sizes[1] > 1 << 24 || sizes[2] < 1 || sizes[2] > 1 << 20)
      throw std::runtime_error("the base's sizes are out of range");
    context = static_cast<std::size_t>(sizes[0]);
    vocabulary = static_cast<std::size_t>(sizes[1]);
    chunks.resize(static_cast<std::size_t>(sizes[2]));
    for (auto& chunk : chunks) {
      chunk.resize(context);
      read(chunk.data(), context * sizeof chunk[0]);
    }
    row_.resize((vocabulary + 1) / 2 * 2 + 4);
    log_probabilities_.resize(vocabulary);
  }

  /// Log-probabilities at the next scored position; those that are `least` may be lower.
  std::span<const float> next() {
    read(row_.data(), row_.size() * sizeof row_[0]);
    float scale = 0.0f;
    std::memcpy(&scale, row_.data(), sizeof scale);
    std::memcpy(&least, row_.data() + 2, sizeof least);
    for (std::size_t i = 0; i < vocabulary; ++i)
      log_probabilities_[i] = scale * static_cast<float>(row_[i + 4]) + least;
    return log_probabilities_;
  }

  std::size_t context = 0, vocabulary = 0;
  std::vector<std::vector<baton::TokenId>> chunks;
  float least = 0.0f;

 private:
  void read(void* out, std::size_t bytes) {
    if (!file_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes)))
      throw std::runtime_error("the base cannot be read, or ends early");
  }

  std::ifstream file_;
  std::vector<std::uint16_t> row_;
  std::vector<float> log_probabilities_;
};

struct Distance {
  double kl = 0.0, nll = 0.0, base_nll = 0.0;
  std::size_t count = 0, same_best = 0;

  void add(std::span<const float> base, float least, std::span<const float> logits, std::size_t token) {
    const float max = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - max));
    const double log_sum = max + std::log(sum);
    for (std::size_t i = 0; i < base.size(); ++i)
      if (base[i] > least) kl += std::exp(static_cast<double>(base[i])) * (base[i] - (logits[i] - log_sum));
    nll += log_sum - logits[token];
    base_nll -= base[token];
    const auto best = [](std::span<const float> of) { return std::max_element(of.begin(), of.end()) - of.begin(); };
    same_best += best(base) == best(logits) ? 1 : 0;
    ++count;
  }
};

/// Does the tokenizer put a token before every text?
bool has_bos(const baton::Tokenizer& tokenizer) {
  return tokenizer.encode_with_template("a").front() != tokenizer.encode("a", baton::SpecialTokens::as_text).front();
}

Distance measure(baton::Backend& backend, const baton::Model& model, Base& base) {
  if (base.vocabulary != static_cast<std::size_t>(model.config.vocabulary))
    throw std::runtime_error("the base's vocabulary has another size");
  Distance distance;
  const auto context = static_cast<std::int32_t>(base.context);
  const bool bos = has_bos(*model.tokenizer);
  baton::KvCache cache(backend, model.kv_layout(), context);
  baton::Forward forward(backend, model);
  for (auto chunk : base.chunks) {
    if (bos) chunk[0] = model.tokenizer->encode_with_template("a").front();
    cache.truncate(0);
    constexpr std::int32_t kRows = 64;  // of a step: their logits are held at once
    for (std::int32_t begin = 0; begin < context - 1; begin += kRows) {
      const std::int32_t end = std::min(begin + kRows, context - 1);
      baton::StepRows rows;
      const std::int32_t index = rows.add_cache(&cache);
      const std::int32_t first_scored = std::max(begin, context / 2);
      for (std::int32_t at = begin; at < end; ++at) {
        rows.add_row(index, at, chunk[static_cast<std::size_t>(at)]);
        if (at >= first_scored) rows.logits_rows.push_back(at - begin);
      }
      const std::span<const float> logits = forward.run(rows);
      cache.commit(end);
      for (std::int32_t at = first_scored; at < end; ++at) {
        const std::span<const float> next = base.next();
        distance.add(next, base.least,
                     logits.subspan(static_cast<std::size_t>(at - first_scored) * base.vocabulary, base.vocabulary),
                     static_cast<std::size_t>(chunk[static_cast<std::size_t>(at) + 1]));
      }
    }
  }
  return distance;
}

baton::DType type_of(const std::string& name) {
  if (name != "bf16" && name != "f32") throw std::runtime_error("type '" + name + "': expected bf16 or f32");
  return name == "f32" ? baton::DType::f32 : baton::DType::bf16;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::cerr << "usage: baton_distance_check MODEL BASE WEIGHTS KV [ACTIVATIONS]\n";
    return 2;
  }
  try {
    const auto backend = baton::make_backend({"cpu", 0});
    baton::ModelOptions options;
    options.dtype = type_of(argv[3]);
    options.kv_dtype = type_of(argv[4]);
    if (argc == 6) options.activations = type_of(argv[5]);
    Base base(argv[2]);
    const auto model = baton::open_model(*backend, argv[1], options);
    const Distance distance = measure(*backend, *model, base);
    const auto count = static_cast<double>(distance.count);
    const nlohmann::json found = {{"chunks", base.chunks.size()},
                                  {"scored", distance.count},
                                  {"kl", distance.kl / count},
                                  {"same_best", static_cast<double>(distance.same_best) / count},
                                  {"perplexity", std::exp(distance.nll / count)},
                                  {"base_perplexity", std::exp(distance.base_nll / count)}};
    std::cout << found.dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
