// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "engine/base/json_fields.h"

namespace baton {

// The parts of a config.json that may differ by layer: RoPE and sliding windows.

namespace {

enum class Family : std::uint8_t { llama, qwen2, qwen3, mistral, phi3, gemma3, smollm3, mixtral, qwen3_moe };

inline constexpr std::int32_t kMaxContext = 1 << 27;

/// As Transformers' _compute_yarn_parameters: explicit, else of mscale and mscale_all_dim, else of the factor alone.
double yarn_attention_factor(const JsonFields& scaling, double factor) {
  if (scaling.find("attention_factor") != nullptr) return scaling.number("attention_factor", 1e-6, 1e6);
  const auto mscale = [&](double weight) { return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; };
  const double over = scaling.number_or("mscale", 0.0, 0.0, 1e6);
  const double under = scaling.number_or("mscale_all_dim", 0.0, 0.0, 1e6);
  return over != 0.0 && under != 0.0 ? mscale(over) / mscale(under) : mscale(1.0);
}

/// A number for which Transformers takes null and 0 as "the default".
double nonzero_or(const JsonFields& scaling, const char* key, double fallback) {
  const double value = scaling.number_or(key, 0.0, 0.0, 1e6);
  return value == 0.0 ? fallback : value;
}

void read_scaling(RopeConfig& rope, const ModelConfig& config, const JsonFields& fields, const JsonFields& scaling) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  const std::string type_key = scaling.find("rope_type") != nullptr ? "rope_type" : "type";
  if (type == "default") return;
  if (type != "linear" && type != "llama3" && type != "yarn")
    scaling.fail(type_key, "which is not supported; supported are default, linear, llama3, yarn");

  // Transformers lets the top-level key win, and falls back to the context.
  const JsonFields& original = fields.find("original_max_position_embeddings") != nullptr ? fields : scaling;
  rope.original_context = original.integer_or("original_max_position_embeddings", config.context, 1, kMaxContext);

  if (type == "yarn" && scaling.find("factor") == nullptr) {
    rope.factor = static_cast<double>(config.context) / rope.original_context;
  } else {
    rope.factor = scaling.number("factor", 1.0, 1e6);
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.low_freq_factor = scaling.number("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = scaling.number("high_freq_factor", 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      scaling.fail("high_freq_factor", fmt::format("expected more than low_freq_factor, {}", rope.low_freq_factor));
  } else {
    rope.scaling = RopeScaling::yarn;
    rope.beta_fast = nonzero_or(scaling, "beta_fast", 32.0);
    rope.beta_slow = nonzero_or(scaling, "beta_slow", 1.0);
    rope.truncate = scaling.flag_or("truncate", true);
    rope.attention_factor = yarn_attention_factor(scaling, rope.factor);
  }
}

constexpr double kMinTheta = 1.0 + 1e-6, kMaxTheta = 1e15;  // YaRN divides by ln(theta)

/// Reads one object of settings: of "rope_scaling", of "rope_parameters", or of one kind of layers in it.
void read_rope_object(RopeConfig& rope, const ModelConfig& config, const JsonFields& fields,
                      const JsonFields& scaling) {
  if (scaling.number_or("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0)
    scaling.fail("partial_rotary_factor", "but only heads that are rotated as a whole (1.0) are supported");
  rope.theta = scaling.number_or("rope_theta", rope.theta, kMinTheta, kMaxTheta);
  read_scaling(rope, config, fields, scaling);
}

/// Gemma 3 has one RoPE for full attention and one for sliding windows; a rope_scaling is of the former alone.
void read_layer_type_ropes(ModelConfig& config, const JsonFields& fields, const std::string& origin) {
  config.rope.theta = fields.number_or("rope_theta", 1e6, kMinTheta, kMaxTheta);
  config.local_rope.theta = fields.number_or("rope_local_base_freq", 10000.0, kMinTheta, kMaxTheta);
  if (const Json* parameters = fields.find("rope_parameters")) {
    const JsonFields by_type(*parameters, origin, "rope_parameters.");
    for (const auto& [key, rope] :
         {std::pair("full_attention", &config.rope), std::pair("sliding_attention", &config.local_rope)}) {
      if (const Json* one = by_type.find(key))
        read_rope_object(*rope, config, fields, {*one, origin, fmt::format("rope_parameters.{}.", key)});
    }
  }
  if (const Json* scaling = fields.find("rope_scaling"))
    read_rope_object(config.rope, config, fields, {*scaling, origin, "rope_scaling."});
}

/// The layers of a "layer_types" that have a sliding window.
std::vector<bool> sliding_layers(const ModelConfig& config, const JsonFields& fields, const Json& types) {
  if (!types.is_array() || types.size() != static_cast<std::size_t>(config.layers))
    fields.fail("layer_types", fmt::format("expected a list of {}, one of each layer", config.layers));
  std::vector<bool> sliding;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fields.fail("layer_types", fmt::format("with {}, expected full_attention or sliding_attention", describe(type)));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

/// Layers that Qwen lists by name, or all from max_window_layers on.
void read_qwen_windows(ModelConfig& config, const JsonFields& fields) {
  std::int32_t window = 0;
  if (fields.flag_or("use_sliding_window", false) && !fields.is_null("sliding_window"))
    window = fields.integer_or("sliding_window", 4096, 1, kMaxContext);

  const Json* types = fields.find("layer_types");
  if (types == nullptr) {
    const std::int32_t first = fields.integer_or("max_window_layers", 28, 0, kMaxContext);
    for (std::int32_t layer = first; layer < config.layers; ++layer) config.window[layer] = window;
    return;
  }
  const std::vector<bool> sliding = sliding_layers(config, fields, *types);
  for (std::size_t layer = 0; layer < sliding.size(); ++layer) {
    if (!sliding[layer]) continue;
    if (window == 0) fields.fail("layer_types", "with sliding_attention, but there is no sliding window");
    config.window[layer] = window;
  }
}

/// SmolLM3 lists the layers that have RoPE, or all but every fourth one has it; "no_rope_layer_interval" names another
/// period. Where it has sliding windows, the layers without RoPE have them unless they are listed.
void read_smollm_layers(ModelConfig& config, const JsonFields& fields) {
  if (const Json* listed = fields.find("no_rope_layers")) {
    if (!listed->is_array() || listed->size() < config.window.size())
      fields.fail("no_rope_layers", fmt::format("expected a list of {}, one of each layer", config.layers));
    for (std::size_t layer = 0; layer < config.window.size(); ++layer) {
      const Json& rotated = (*listed)[layer];
      if (rotated != 0 && rotated != 1)
        fields.fail("no_rope_layers", fmt::format("with {}, expected 0 or 1", describe(rotated)));
      config.rope_kinds.push_back(rotated == 1 ? RopeKind::global : RopeKind::none);
    }
  } else {
    const std::int32_t period = fields.integer_or("no_rope_layer_interval", 4, 1, kMaxContext);
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
      config.rope_kinds.push_back((layer + 1) % period != 0 ? RopeKind::global : RopeKind::none);
  }
  if (!fields.flag_or("use_sliding_window", false) || fields.find("sliding_window") == nullptr) return;
  const std::int32_t window = fields.integer("sliding_window", 1, kMaxContext);
  const Json* types = fields.find("layer_types");
  const std::vector<bool> sliding = types != nullptr ? sliding_layers(config, fields, *types) : std::vector<bool>();
  for (std::size_t layer = 0; layer < config.window.size(); ++layer)
    config.window[layer] =
        (types != nullptr ? sliding[layer] : config.rope_kinds[layer] == RopeKind::none) ? window : 0;
}

/// Layers that Gemma 3 lists by name, or all but every sixth one; "sliding_window_pattern" names another period.
void read_gemma_windows(ModelConfig& config, const JsonFields& fields) {
  std::vector<bool> sliding(static_cast<std::size_t>(config.layers));
  if (const Json* types = fields.find("layer_types")) {
    sliding = sliding_layers(config, fields, *types);
  } else {
    const std::int32_t period = fields.integer_or("sliding_window_pattern", 6, 1, kMaxContext);
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
      sliding[static_cast<std::size_t>(layer)] = (layer + 1) % period != 0;
  }
  const bool any = std::ranges::find(sliding, true) != sliding.end();
  if (any && fields.is_null("sliding_window"))
    fields.fail("sliding_window", "expected a number of tokens, as there are layers with a sliding window");
  const std::int32_t window = any ? fields.integer_or("sliding_window", 4096, 1, kMaxContext) : 0;
  for (std::size_t layer = 0; layer < sliding.size(); ++layer) {
    config.window[layer] = sliding[layer] ? window : 0;
    config.rope_kinds.push_back(sliding[layer] ? RopeKind::local : RopeKind::global);
  }
}

/// Reads RoPE's settings, in every spelling. Throws ModelError for what is not supported, by name.
void read_rope(ModelConfig& config, const JsonFields& fields, Family family, const std::string& origin) {
  if (family == Family::gemma3) return read_layer_type_ropes(config, fields, origin);
  // Three spellings: "rope_theta" and "rope_scaling" (with "type" or "rope_type"), or both inside "rope_parameters".
  config.rope.theta = fields.number_or("rope_theta", family == Family::smollm3 ? 2e6 : 10000.0, kMinTheta, kMaxTheta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.find(key);
    if (value == nullptr || value->empty()) continue;
    const JsonFields scaling(*value, origin, std::string(key) + ".");
    for (const auto& [name, entry] : value->items())
      if (entry.is_object()) scaling.fail(name, "but RoPE that differs by layer type is not supported");
    read_rope_object(config.rope, config, fields, scaling);
    return;  // as in Transformers, a filled rope_scaling hides rope_parameters
  }
}

/// Reads the window of each layer, and which RoPE it has. Throws ModelError for what is not supported, by name.
void read_windows(ModelConfig& config, const JsonFields& fields, Family family) {
  config.window.assign(config.layers, 0);
  if (family == Family::qwen2 || family == Family::qwen3) return read_qwen_windows(config, fields);
  if (family == Family::gemma3) return read_gemma_windows(config, fields);
  if (family == Family::smollm3) return read_smollm_layers(config, fields);

  if (const Json* types = fields.find("layer_types")) {
    for (const Json& type : *types)
      if (type != "full_attention" || family != Family::llama)
        fields.fail("layer_types", "but attention that differs by layer is not supported for this architecture");
  }
  if (family == Family::qwen3_moe && !fields.flag_or("use_sliding_window", false)) return;
  if (family == Family::llama || fields.is_null("sliding_window")) return;  // Llama has no window, whatever is written
  const std::int32_t absent =
      family == Family::mistral || family == Family::qwen3_moe ? 4096 : 0;  // the defaults of Transformers
  config.window.assign(config.layers, fields.integer_or("sliding_window", absent, 1, kMaxContext));
}

// The whole file.

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
