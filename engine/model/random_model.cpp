// SPDX-License-Identifier: Apache-2.0
// make_random_model: every weight is a function of the seed, its matrix and its index in the matrix.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/backend/random_weights.h"
#include "engine/model/shapes.h"

namespace baton {
namespace {

class RandomWeights {
 public:
  RandomWeights(Backend& backend, const ModelOptions& options, std::uint64_t seed)
      : backend_(backend),
        dtype_(options.dtype),
        activations_(options.activations == DType::bf16 ? Activations::bf16 : Activations::f32),
        seed_(seed) {}

  std::unique_ptr<Matrix> matrix(std::int64_t rows, std::int64_t cols) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    const std::uint64_t seed = scrambled(seed_ ^ scrambled(++matrices_));
    auto matrix = backend_.random_matrix(rows, cols, dtype_, seed, deviation, activations_);
    bytes_ += matrix->bytes;
    return matrix;
  }

  std::vector<float> constant(std::int64_t count, float value) {
    bytes_ += static_cast<std::size_t>(count) * sizeof(float);
    return std::vector<float>(static_cast<std::size_t>(count), value);
  }

  std::size_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  DType dtype_;
  Activations activations_;
  std::uint64_t seed_;
  std::uint64_t matrices_ = 0;
  std::size_t bytes_ = 0;
};

LayerWeights make_layer(RandomWeights& random, const ModelConfig& c, std::int32_t index) {
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  const std::int64_t ffn = c.ffn_width;
  LayerWeights layer;
  layer.input_norm = random.constant(c.width, 1.0f);
  layer.qkv = random.matrix(q + 2 * kv, c.width);
  if (c.attention_bias) layer.qkv_bias = random.constant(q + 2 * kv, 0.0f);
  if (c.qk_norm) {
    layer.q_norm = random.constant(c.head_dim, 1.0f);
    layer.k_norm = random.constant(c.head_dim, 1.0f);
  }
  layer.output = random.matrix(c.width, q);
  if (c.output_bias) layer.output_bias = random.constant(c.width, 0.0f);
  layer.mlp_norm = random.constant(c.width, 1.0f);
  if (c.post_norms) layer.attention_post_norm = layer.mlp_post_norm = random.constant(c.width, 1.0f);
  if (c.mixture.in(index)) {
    layer.router = random.matrix(c.mixture.experts, c.width);
    for (std::int32_t expert = 0; expert < c.mixture.experts; ++expert) {
      auto gate_up = random.matrix(2 * std::int64_t{c.mixture.ffn_width}, c.width);
      layer.experts.push_back({std::move(gate_up), random.matrix(c.width, c.mixture.ffn_width)});
    }
    return layer;
  }
  layer.gate_up = random.matrix(2 * ffn, c.width);
  if (c.mlp_bias) layer.gate_up_bias = random.constant(2 * ffn, 0.0f);
  layer.down = random.matrix(c.width, ffn);
  if (c.mlp_bias) layer.down_bias = random.constant(c.width, 0.0f);
  return layer;
}

std::string utf8(unsigned code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
}

/// Returns GPT-2's printable character for each byte.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    symbols.push_back(utf8(printable ? byte : next++));
  }
  return symbols;
}

}  // namespace

std::string byte_tokenizer_json() {
  nlohmann::json vocabulary = nlohmann::json::object();
  int id = 0;
  for (const std::string& symbol : byte_symbols()) vocabulary[symbol] = id++;
  const auto added = [](int token, const char* text) {
    return nlohmann::json{{"id", token},     {"content", text},     {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json model = {{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"vocab", vocabulary},
                                {"merges", nlohmann::json::array()}};
  return nlohmann::json{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", {added(256, "<|start|>"), added(257, "<|end|>")}},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level},
                        {"post_processor", nullptr},
                        {"decoder", byte_level},
                        {"model", model}}
      .dump();
}

std::shared_ptr<const Model> make_random_model(Backend& backend, const Shape& shape, std::uint64_t seed,
                                               const ModelOptions& options) {
  const ModelConfig& config = shape.config;
  RandomWeights random(backend, options, seed);
  const double steps = config.layers + 2.0;
  const auto done = [&](double step) {
    if (options.progress) options.progress(step / steps);
  };
  Weights weights;
  weights.embedding = random.matrix(config.vocabulary, config.width);
  done(1);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    weights.layers.push_back(make_layer(random, config, layer));
    done(layer + 2);
  }
  weights.final_norm = random.constant(config.width, 1.0f);
  weights.lm_head = config.tied_embeddings ? weights.embedding : random.matrix(config.vocabulary, config.width);
  weights.bytes = random.bytes();
  weights.keep_vectors(backend);
  done(steps);
  ModelOptions own = options;
  if (own.context == 0) own.context = config.context;
  ModelText text{.path = shape.name,
                 .fingerprint = fmt::format("{}, random weights of seed {}", shape.name, seed),
                 .tokenizer = Tokenizer::parse(byte_tokenizer_json(), "tokenizer.json")};
  return std::make_shared<const Model>(Model{std::move(text), config, own, LayerRopes(config), std::move(weights), {}});
}

}  // namespace baton
