// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "engine/base/json_fields.h"
#include "engine/model/config.h"

namespace baton {
namespace {

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

}  // namespace

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

namespace {

constexpr std::int32_t kMaxExtent = 1 << 20;  // of a group or a block

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The first of two spellings that is there.
std::string key_of(const JsonFields& fields, const char* key, const char* older) {
  return fields.find(key) == nullptr && fields.find(older) != nullptr ? older : key;
}

void require_four_bits(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "bits", older);
  if (fields.integer(key, 1, 64) != 4) fields.fail(key, "but of this method only 4 bits are supported");
}

/// -1 stands for all inputs.
std::int32_t read_group_size(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "group_size", older);
  const std::int32_t size = fields.integer(key, -1, kMaxExtent);
  if (size == 0) fields.fail(key, "expected -1 or a number of inputs");
  return std::max(size, 0);
}

/// Two numbers, outputs and inputs of a block.
void read_block(QuantizationConfig& config, const JsonFields& fields, const std::string& key) {
  const Json* block = fields.find(key);
  if (block == nullptr) return;
  const bool sound = block->is_array() && block->size() == 2 && std::ranges::all_of(*block, [](const Json& extent) {
                       return extent.is_number_integer() && extent >= 1 && extent <= kMaxExtent;
                     });
  if (!sound) fields.fail(key, "expected two numbers, the outputs and the inputs of a block, such as [128, 128]");
  config.block_rows = block->front().get<std::int32_t>();
  config.block_cols = block->back().get<std::int32_t>();
}

QuantizationConfig read_fp8(const JsonFields& fields) {
  if (fields.text_or("fmt", "e4m3") != "e4m3") fields.fail("fmt", "but only e4m3 is supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  read_block(config, fields, "weight_block_size");
  return config;
}

/// A scheme of compressed-tensors: how the weights of some modules are quantised.
QuantizationConfig read_scheme(const Json& scheme, const std::string& origin, const std::string& prefix) {
  const JsonFields fields(scheme, origin, prefix);
  const Json* entry = fields.find("weights");
  if (entry == nullptr) fields.fail("weights", "expected how weights are quantised");
  const JsonFields weights(*entry, origin, prefix + "weights.");
  if (weights.text_or("type", "") != "float") weights.fail("type", "but only float is supported");
  if (weights.integer("num_bits", 1, 64) != 8) weights.fail("num_bits", "but only 8 are supported");
  if (!weights.flag_or("symmetric", true)) weights.fail("symmetric", "but only symmetric weights are supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  const std::string strategy = weights.text_or("strategy", "");
  if (strategy == "block") {
    read_block(config, weights, "block_structure");
    if (config.block_rows == 0) weights.fail("block_structure", "expected two numbers, as the strategy is block");
  } else if (strategy != "tensor" && strategy != "channel") {
    weights.fail("strategy", "but only tensor, channel and block are supported");
  }
  return config;
}

QuantizationConfig read_compressed_tensors(const JsonFields& fields, const std::string& origin,
                                           const std::string& prefix) {
  const std::string format = fields.text_or("format", "");
  if (format != "float-quantized" && format != "naive-quantized")
    fields.fail("format", "but of compressed-tensors only float-quantized (FP8) is supported");
  if (const Json* sparsity = fields.find("sparsity_config"); sparsity != nullptr && !sparsity->empty()) {
    if (JsonFields(*sparsity, origin, prefix + "sparsity_config.").text_or("format", "dense") != "dense")
      fields.fail("sparsity_config", "but sparse weights are not supported");
  }
  if (const Json* transforms = fields.find("transform_config"); transforms != nullptr && !transforms->empty()) {
    if (!transforms->is_object() || !transforms->contains("config_groups") || !(*transforms)["config_groups"].empty())
      fields.fail("transform_config", "but transforms of weights are not supported");
  }
  const Json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty())
    fields.fail("config_groups", "expected an object of schemes");
  QuantizationConfig config;
  for (const auto& [name, scheme] : groups->items()) {
    const QuantizationConfig other = read_scheme(scheme, origin, fmt::format("{}config_groups.{}.", prefix, name));
    const bool first = config.format == WeightFormat::plain;
    if (!first && (other.block_rows != config.block_rows || other.block_cols != config.block_cols))
      fields.fail("config_groups", "expected schemes with blocks of one size");
    config = other;
  }
  return config;
}

QuantizationConfig read_gptq(const JsonFields& fields) {
  require_four_bits(fields, "bits");
  const std::string format = lower(fields.text_or(key_of(fields, "checkpoint_format", "format"), "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    fields.fail(key_of(fields, "checkpoint_format", "format"), "but only gptq and gptq_v2 are supported");
  if (fields.flag_or("is_marlin_format", false)) fields.fail("is_marlin_format", "but only gptq is supported");
  if (lower(fields.text_or("pack_dtype", "int32")) != "int32") fields.fail("pack_dtype", "but only int32 is supported");
  return {.format = WeightFormat::gptq,
          .group_size = read_group_size(fields, "group_size"),
          .ordered_by_activation = fields.flag_or("desc_act", false),
          .zeros_less_one = format == "gptq"};
}

QuantizationConfig read_awq(const JsonFields& fields) {
  require_four_bits(fields, "w_bit");
  if (lower(fields.text_or("version", "gemm")) != "gemm") fields.fail("version", "but only gemm is supported");
  if (!fields.flag_or("zero_point", true)) fields.fail("zero_point", "but only weights with zeros are supported");
  return {.format = WeightFormat::awq, .group_size = read_group_size(fields, "q_group_size")};
}

}  // namespace

QuantizationConfig read_quantization(const JsonFields& config, const std::string& origin) {
  const Json* value = config.find("quantization_config");
  if (value == nullptr) return {};
  const std::string prefix = "quantization_config.";
  const JsonFields fields(*value, origin, prefix);
  const std::string method = fields.text_or("quant_method", "");
  if (method == "fp8") return read_fp8(fields);
  if (method == "compressed-tensors") return read_compressed_tensors(fields, origin, prefix);
  if (method == "gptq") return read_gptq(fields);
  if (method == "awq") return read_awq(fields);
  fields.fail("quant_method", "but supported are fp8, compressed-tensors, gptq and awq; or use a checkpoint in bf16");
}

}  // namespace baton
