// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/json_fields.h"
#include "engine/model/config_layers.h"

namespace baton {
namespace {

// Limits far above any real model, and far below where a product of two or three of them leaves 64 bits.
constexpr std::int32_t kMaxLayers = 4096;
constexpr std::int32_t kMaxWidth = 1 << 17;
constexpr std::int32_t kMaxHeads = 1 << 12;
constexpr std::int32_t kMaxHeadDim = 1 << 12;
constexpr std::int32_t kMaxFfnWidth = 1 << 20;
constexpr std::int32_t kMaxVocabulary = 1 << 24;
constexpr std::size_t kMaxEndTokens = 64;

Family read_family(ModelConfig& config, const JsonFields& fields) {
  constexpr std::pair<std::string_view, Family> kFamilies[] = {
      {"LlamaForCausalLM", Family::llama},       {"Qwen2ForCausalLM", Family::qwen2},
      {"Qwen3ForCausalLM", Family::qwen3},       {"MistralForCausalLM", Family::mistral},
      {"Phi3ForCausalLM", Family::phi3},         {"Gemma3ForCausalLM", Family::gemma3},
      {"SmolLM3ForCausalLM", Family::smollm3},   {"MixtralForCausalLM", Family::mixtral},
      {"Qwen3MoeForCausalLM", Family::qwen3_moe}};
  std::string supported;
  for (const auto& [name, family] : kFamilies) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", name);

  const Json* names = fields.find("architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->front().is_string())
    fields.fail("architectures", "expected a list of one of " + supported);
  config.architecture = names->front().get<std::string>();
  for (const auto& [name, family] : kFamilies)
    if (name == config.architecture) return family;
  fields.fail("architectures",
              fmt::format("with {}, which is not supported; supported are {}", describe(names->front()), supported));
}

void reject_other_activations(const JsonFields& fields, Family family) {
  if (family == Family::gemma3) {
    if (fields.text_or("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
      fields.fail("hidden_activation", "but only gelu_pytorch_tanh is supported for this architecture");
    return;
  }
  const std::string activation = fields.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") fields.fail("hidden_act", "but only silu is supported");
}

/// The key of a mixture's number of experts; empty: the family has none. Newer configurations of Qwen3 have Mixtral's.
std::string experts_key(const JsonFields& fields, Family family) {
  if (family == Family::mixtral) return "num_local_experts";
  if (family != Family::qwen3_moe) return "";
  return fields.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
}

/// What would change the numbers and is not computed here must never be ignored.
void reject_unsupported(const JsonFields& fields, Family family) {
  reject_other_activations(fields, family);
  if (fields.number_or("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0)
    fields.fail("partial_rotary_factor", "but only heads that are rotated as a whole (1.0) are supported");
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const bool known = key == experts_key(fields, family);
    if (!known && fields.integer_or(key, 0, 0, kMaxFfnWidth) != 0)
      fields.fail(key, "but mixtures of experts are not supported for this architecture");
  }
  if (const Json* rotated = fields.find("no_rope_layers"); rotated != nullptr && family != Family::smollm3) {
    for (const Json& layer : *rotated)
      if (layer != 1) fields.fail("no_rope_layers", "but layers without RoPE (NoPE) are not supported");
  }
  if (family != Family::llama && family != Family::smollm3 && fields.flag_or("mlp_bias", false))
    fields.fail("mlp_bias", "which this architecture does not have");
  if (family == Family::gemma3) {
    if (fields.number_or("attn_logit_softcapping", 0.0, 0.0, 1e30) != 0.0)
      fields.fail("attn_logit_softcapping", "but soft caps of attention scores are not supported");
    if (fields.flag_or("use_bidirectional_attention", false))
      fields.fail("use_bidirectional_attention", "but only causal attention is supported");
  }
  if ((family == Family::mistral || family == Family::phi3 || family == Family::mixtral) &&
      fields.flag_or("attention_bias", false))
    fields.fail("attention_bias", "which this architecture does not have");
}

void read_dimensions(ModelConfig& config, const JsonFields& fields, Family family) {
  config.layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.width = fields.integer("hidden_size", 1, kMaxWidth);
  config.heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = fields.integer_or("num_key_value_heads", config.heads, 1, kMaxHeads);
  config.ffn_width = fields.integer("intermediate_size", 1, kMaxFfnWidth);
  config.vocabulary = fields.integer("vocab_size", 1, kMaxVocabulary);
  config.context = fields.integer("max_position_embeddings", 1, kMaxContext);
  config.norm_eps = static_cast<float>(
      fields.number_or("rms_norm_eps", family == Family::phi3 || family == Family::mixtral ? 1e-5 : 1e-6, 0.0, 1.0));
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", family == Family::gemma3 || family == Family::smollm3);

  if (config.heads % config.kv_heads != 0)
    fields.fail("num_key_value_heads", fmt::format("expected a divisor of num_attention_heads, {}", config.heads));

  if (fields.find("head_dim") != nullptr) {
    config.head_dim = fields.integer("head_dim", 2, kMaxHeadDim);
  } else if (family == Family::qwen3 && !fields.is_null("head_dim")) {
    config.head_dim = 128;  // the default of Transformers' Qwen3Config, whatever the width is
  } else if (family == Family::gemma3 && !fields.is_null("head_dim")) {
    config.head_dim = 256;  // that of its Gemma3TextConfig
  } else {
    if (config.width % config.heads != 0)
      fields.fail("hidden_size",
                  fmt::format("expected a multiple of num_attention_heads, {}, as there is no head_dim", config.heads));
    config.head_dim = config.width / config.heads;
    if (config.head_dim < 2 || config.head_dim > kMaxHeadDim)
      fields.fail("hidden_size",
                  fmt::format("which gives heads of {}, expected 2 to {}", config.head_dim, kMaxHeadDim));
  }
  if (config.head_dim % 2 != 0)
    fields.fail("head_dim", fmt::format("which makes heads of {}, expected an even width for RoPE", config.head_dim));
}

void read_biases_and_norms(ModelConfig& config, const JsonFields& fields, Family family) {
  const bool declared = fields.flag_or("attention_bias", false);
  config.attention_bias = family == Family::qwen2 || declared;
  config.output_bias = family != Family::qwen2 && declared;
  config.mlp_bias = fields.flag_or("mlp_bias", false);
  config.qk_norm = family == Family::qwen3 || family == Family::qwen3_moe || family == Family::gemma3;
}

constexpr std::int32_t kMaxExperts = 4096;

void read_mixture(ModelConfig& config, const JsonFields& fields, Family family) {
  MixtureConfig& mixture = config.mixture;
  if (family == Family::mixtral) {
    mixture.experts = fields.integer_or("num_local_experts", 8, 1, kMaxExperts);
    mixture.chosen = fields.integer_or("num_experts_per_tok", 2, 1, kMaxExperts);
    mixture.ffn_width = config.ffn_width;
  } else {
    mixture.experts = fields.integer_or(experts_key(fields, family), 128, 1, kMaxExperts);
    mixture.chosen = fields.integer_or("num_experts_per_tok", 8, 1, kMaxExperts);
    mixture.ffn_width = fields.integer_or("moe_intermediate_size", 768, 1, kMaxFfnWidth);
    mixture.normalized = fields.flag_or("norm_topk_prob", false);
    const std::int32_t period = fields.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
    std::vector<std::int32_t>& dense = mixture.dense_layers;
    dense = fields.integers("mlp_only_layers", 0, config.layers - 1);
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
      if ((layer + 1) % period != 0) dense.push_back(layer);
    std::ranges::sort(dense);
    dense.erase(std::unique(dense.begin(), dense.end()), dense.end());
    dense.shrink_to_fit();
  }
  if (mixture.chosen > mixture.experts)
    fields.fail("num_experts_per_tok", fmt::format("expected at most {}, the number of experts", mixture.experts));
}

/// What Gemma 3 does and the other families do not.
void read_gemma(ModelConfig& config, const JsonFields& fields) {
  config.post_norms = true;
  config.norm_offset = 1.0f;
  config.activation = GateActivation::gelu_tanh;
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.width)));
  config.query_divisor = static_cast<float>(fields.number_or("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  config.logit_cap = static_cast<float>(fields.number_or("final_logit_softcapping", 0.0, 0.0, 1e30));
}

std::size_t count_distinct(std::span<const std::int32_t> ids) {
  std::vector<std::int32_t> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

}  // namespace

std::vector<std::int32_t> end_tokens(std::span<const std::int32_t> ids, const std::string& origin) {
  std::vector<std::int32_t> ends;
  for (const std::int32_t id : ids) {
    if (std::ranges::find(ends, id) != ends.end()) continue;
    if (ends.size() == kMaxEndTokens)
      throw ModelError(
          fmt::format("{}: {} tokens end an answer, expected at most {}", origin, count_distinct(ids), kMaxEndTokens));
    ends.push_back(id);
  }
  return ends;
}

ModelConfig parse_config(std::string_view json, const std::string& origin) {
  const JsonDocument root = parse_json(json, origin);
  const JsonFields fields(*root, origin);

  ModelConfig config;
  const Family family = read_family(config, fields);
  reject_unsupported(fields, family);
  read_dimensions(config, fields, family);
  read_biases_and_norms(config, fields, family);
  if (family == Family::gemma3) read_gemma(config, fields);
  if (family == Family::mixtral || family == Family::qwen3_moe) read_mixture(config, fields, family);
  read_rope(config, fields, family, origin);
  read_windows(config, fields, family);
  config.eos_tokens = end_tokens(fields.integers("eos_token_id", 0, config.vocabulary - 1), origin);
  config.bos_token = fields.integer_or("bos_token_id", -1, 0, config.vocabulary - 1);
  config.quantization = read_quantization(fields, origin);
  return config;
}

}  // namespace baton
