// SPDX-License-Identifier: Apache-2.0
#include "engine/model/shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

struct Entry {
  std::string_view name;
  std::string_view config;  // as in the model's config.json
  std::int32_t rectify_start = 0, rectify_detect = 0, rectify_end = 0;
};

constexpr Entry kShapes[] = {
    {"llama-3.1-8b", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]})",
     1, 3, 18},
    {"qwen3-0.6b", R"({
       "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
       "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
       "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
       "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645})",
     2, 3, 19},
    {"qwen2.5-7b", R"({
       "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
       "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
       "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
       "tie_word_embeddings": false, "bos_token_id": 151643, "eos_token_id": 151645})",
     3, 4, 22},
    {"mistral-7b", R"({
       "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768,
       "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
       "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"smollm2-135m", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
       "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
       "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 100000,
       "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2})"},
    {"nano", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 192, "intermediate_size": 512,
       "num_hidden_layers": 10, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
       "vocab_size": 1280, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
       "tie_word_embeddings": true, "eos_token_id": 2})"},
};

const Entry& find_entry(std::string_view name) {
  const auto* entry =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Entry& one) { return one.name == name; });
  if (entry == std::end(kShapes)) {
    throw ModelError(fmt::format("unknown shape '{}'; expected one of {}", name, fmt::join(shape_names(), ", ")));
  }
  return *entry;
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : kShapes) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

Shape find_shape(std::string_view name, std::int32_t layers) {
  const Entry& entry = find_entry(name);
  Shape shape{std::string(name), parse_config(entry.config, std::string(name)), entry.rectify_start,
              entry.rectify_detect, entry.rectify_end};
  if (layers > 0) {
    shape.config.layers = layers;
    shape.config.window.resize(static_cast<std::size_t>(layers), shape.config.window.back());
    if (!shape.config.rope_kinds.empty())
      shape.config.rope_kinds.resize(static_cast<std::size_t>(layers), shape.config.rope_kinds.back());
  }
  return shape;
}

std::string shape_config(std::string_view name) { return std::string(find_entry(name).config); }

std::int64_t parameter_count(const ModelConfig& c) {
  const std::int64_t width = c.width, ffn = c.ffn_width;
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  std::int64_t layer = width * (q + 2 * kv) + q * width + 2 * width;
  if (c.post_norms) layer += 2 * width;
  if (c.qk_norm) layer += 2 * c.head_dim;
  if (c.attention_bias) layer += q + 2 * kv;
  if (c.output_bias) layer += width;
  const std::int64_t mlp = 3 * width * ffn + (c.mlp_bias ? 2 * ffn + width : 0);
  const std::int64_t mixture = c.mixture.experts * (width + 3 * width * c.mixture.ffn_width);
  std::int64_t mixtures = 0;
  for (std::int32_t i = 0; i < c.layers; ++i) mixtures += c.mixture.in(i) ? 1 : 0;
  return c.layers * layer + mixtures * mixture + (c.layers - mixtures) * mlp + width +
         c.vocabulary * width * (c.tied_embeddings ? 1 : 2);
}

}  // namespace baton
