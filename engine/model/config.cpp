// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/json_fields.h"

namespace baton {
namespace {

// Limits far above any real model, and far below where a product of two or three of them leaves 64 bits.
constexpr std::int32_t kMaxLayers = 4096;
constexpr std::int32_t kMaxWidth = 1 << 17;
constexpr std::int32_t kMaxHeads = 1 << 12;
constexpr std::int32_t kMaxHeadDim = 1 << 12;
constexpr std::int32_t kMaxFfnWidth = 1 << 20;
constexpr std::int32_t kMaxVocabulary = 1 << 24;
constexpr std::int32_t kMaxContext = 1 << 27;

enum class Family { llama, qwen2, qwen3, mistral, phi3 };

Family read_family(ModelConfig& config, const JsonFields& fields) {
  constexpr std::pair<std::string_view, Family> kFamilies[] = {{"LlamaForCausalLM", Family::llama},
                                                               {"Qwen2ForCausalLM", Family::qwen2},
                                                               {"Qwen3ForCausalLM", Family::qwen3},
                                                               {"MistralForCausalLM", Family::mistral},
                                                               {"Phi3ForCausalLM", Family::phi3}};
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

/// What would change the numbers and is not computed here must never be ignored.
void reject_unsupported(const JsonFields& fields, Family family) {
  if (fields.find("quantization_config") != nullptr)
    fields.fail("quantization_config", "but quantized checkpoints are not supported; use one in bf16, f16 or f32");
  const std::string activation = fields.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") fields.fail("hidden_act", "but only silu is supported");
  if (fields.number_or("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0)
    fields.fail("partial_rotary_factor", "but only heads that are rotated as a whole (1.0) are supported");
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (fields.integer_or(key, 0, 0, kMaxFfnWidth) != 0) fields.fail(key, "but mixtures of experts are not supported");
  if (const Json* rotated = fields.find("no_rope_layers")) {
    for (const Json& layer : *rotated)
      if (layer != 1) fields.fail("no_rope_layers", "but layers without RoPE (NoPE) are not supported");
  }
  if (family != Family::llama && fields.flag_or("mlp_bias", false))
    fields.fail("mlp_bias", "which this architecture does not have");
  if ((family == Family::mistral || family == Family::phi3) && fields.flag_or("attention_bias", false))
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
  config.norm_eps =
      static_cast<float>(fields.number_or("rms_norm_eps", family == Family::phi3 ? 1e-5 : 1e-6, 0.0, 1.0));
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", false);

  if (config.heads % config.kv_heads != 0)
    fields.fail("num_key_value_heads", fmt::format("expected a divisor of num_attention_heads, {}", config.heads));

  if (fields.find("head_dim") != nullptr) {
    config.head_dim = fields.integer("head_dim", 2, kMaxHeadDim);
  } else if (family == Family::qwen3 && !fields.is_null("head_dim")) {
    config.head_dim = 128;  // the default of Transformers' Qwen3Config, whatever the width is
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
  config.qk_norm = family == Family::qwen3;
}

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

void read_scaling(ModelConfig& config, const JsonFields& fields, const JsonFields& scaling) {
  RopeConfig& rope = config.rope;
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

/// Three spellings: "rope_theta" and "rope_scaling" (with "type" or "rope_type"), or both inside "rope_parameters".
void read_rope(ModelConfig& config, const JsonFields& fields, const std::string& origin) {
  constexpr double kMinTheta = 1.0 + 1e-6, kMaxTheta = 1e15;  // YaRN divides by ln(theta)
  config.rope.theta = fields.number_or("rope_theta", 10000.0, kMinTheta, kMaxTheta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.find(key);
    if (value == nullptr || value->empty()) continue;
    const JsonFields scaling(*value, origin, std::string(key) + ".");
    for (const auto& [name, entry] : value->items())
      if (entry.is_object()) scaling.fail(name, "but RoPE that differs by layer type is not supported");
    if (scaling.number_or("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0)
      scaling.fail("partial_rotary_factor", "but only heads that are rotated as a whole (1.0) are supported");
    config.rope.theta = scaling.number_or("rope_theta", config.rope.theta, kMinTheta, kMaxTheta);
    read_scaling(config, fields, scaling);
    return;  // as in Transformers, a filled rope_scaling hides rope_parameters
  }
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
  if (!types->is_array() || types->size() != config.window.size())
    fields.fail("layer_types", fmt::format("expected a list of {}, one of each layer", config.layers));
  for (std::size_t layer = 0; layer < types->size(); ++layer) {
    const Json& type = (*types)[layer];
    if (type == "full_attention") continue;
    if (type != "sliding_attention")
      fields.fail("layer_types", fmt::format("with {}, expected full_attention or sliding_attention", describe(type)));
    if (window == 0) fields.fail("layer_types", "with sliding_attention, but there is no sliding window");
    config.window[layer] = window;
  }
}

void read_windows(ModelConfig& config, const JsonFields& fields, Family family) {
  config.window.assign(config.layers, 0);
  if (family == Family::qwen2 || family == Family::qwen3) return read_qwen_windows(config, fields);

  if (const Json* types = fields.find("layer_types")) {
    for (const Json& type : *types)
      if (type != "full_attention" || family != Family::llama)
        fields.fail("layer_types", "but attention that differs by layer is not supported for this architecture");
  }
  if (family == Family::llama || fields.is_null("sliding_window")) return;  // Llama has no window, whatever is written
  const std::int32_t absent = family == Family::mistral ? 4096 : 0;         // the defaults of Transformers
  config.window.assign(config.layers, fields.integer_or("sliding_window", absent, 1, kMaxContext));
}

}  // namespace

ModelConfig parse_config(std::string_view json, const std::string& origin) {
  const Json root = parse_json(json, origin);
  const JsonFields fields(root, origin);

  ModelConfig config;
  const Family family = read_family(config, fields);
  reject_unsupported(fields, family);
  read_dimensions(config, fields, family);
  read_biases_and_norms(config, fields, family);
  read_rope(config, fields, origin);
  read_windows(config, fields, family);
  config.eos_tokens = fields.integers("eos_token_id", 0, config.vocabulary - 1);
  config.bos_token = fields.integer_or("bos_token_id", -1, 0, config.vocabulary - 1);
  return config;
}

}  // namespace baton
