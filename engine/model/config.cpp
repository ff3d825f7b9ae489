// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <utility>

#include "engine/base/json_fields.h"

namespace baton {

// The parts of a config.json that may differ by layer: RoPE and sliding windows.

namespace {

enum class Family : std::uint8_t {
  llama,
  qwen2,
  qwen3,
  mistral,
  phi3,
  gemma3,
  smollm3,
  mixtral,
  qwen3_moe,
  granite,
  olmo3,
  exaone4,
  glm4,
  ministral3,
  qwen2_moe,
  lfm2,
  lfm2_moe,
  qwen35,
  qwen35_moe,
  qwen3_next,
  granite_hybrid,
  nemotron,
  falcon_h1,
  hunyuan,
  gpt_oss,
  gemma4,
  gemma3n,
};

/// Attention and gated delta nets.
bool is_delta_hybrid(Family family) {
  return family == Family::qwen35 || family == Family::qwen35_moe || family == Family::qwen3_next;
}
bool is_gemma(Family family) {
  return family == Family::gemma3 || family == Family::gemma3n || family == Family::gemma4;
}
bool is_lfm2(Family family) { return family == Family::lfm2 || family == Family::lfm2_moe; }

/// A family and what its configurations leave out, as Transformers fills it in.
struct FamilyRow {
  std::string_view name;  // of its class, in "architectures"
  double norm_eps = 1e-6;
  double theta = 10000.0;
  double rotary_factor = 1.0;  // of a head, the part that is rotated
  std::int32_t head_dim = 0;   // 0: width / heads
  Family family;
  bool tied = false;
  bool mlp_bias = false;        // "mlp_bias" may be true
  bool attention_bias = false;  // "attention_bias" or "qkv_bias" may be true
  bool partly_rotated = false;  // "partial_rotary_factor" may be below 1
  bool longrope = false;        // LongRoPE is one of its scalings
};

constexpr FamilyRow kFamilies[] = {
    {.name = "LlamaForCausalLM", .family = Family::llama, .mlp_bias = true, .attention_bias = true},
    {.name = "Qwen2ForCausalLM", .family = Family::qwen2, .attention_bias = true},
    {.name = "Qwen3ForCausalLM", .head_dim = 128, .family = Family::qwen3, .attention_bias = true},
    {.name = "MistralForCausalLM", .family = Family::mistral},
    {.name = "Phi3ForCausalLM", .norm_eps = 1e-5, .family = Family::phi3, .partly_rotated = true, .longrope = true},
    {.name = "Gemma3ForCausalLM",
     .theta = 1e6,
     .head_dim = 256,
     .family = Family::gemma3,
     .tied = true,
     .attention_bias = true},
    {.name = "SmolLM3ForCausalLM",
     .theta = 2e6,
     .family = Family::smollm3,
     .tied = true,
     .mlp_bias = true,
     .attention_bias = true},
    {.name = "MixtralForCausalLM", .norm_eps = 1e-5, .family = Family::mixtral},
    {.name = "Qwen3MoeForCausalLM", .family = Family::qwen3_moe, .attention_bias = true},
    {.name = "GraniteForCausalLM", .family = Family::granite, .mlp_bias = true, .attention_bias = true},
    {.name = "Olmo3ForCausalLM", .norm_eps = 1e-5, .theta = 500000.0, .family = Family::olmo3, .attention_bias = true},
    {.name = "Exaone4ForCausalLM", .norm_eps = 1e-5, .family = Family::exaone4},
    {.name = "Glm4ForCausalLM",
     .norm_eps = 1.5625e-7,
     .rotary_factor = 0.5,
     .head_dim = 128,
     .family = Family::glm4,
     .attention_bias = true,
     .partly_rotated = true},
    {.name = "Ministral3ForCausalLM", .norm_eps = 1e-5, .theta = 1e6, .head_dim = 128, .family = Family::ministral3},
    {.name = "Qwen2MoeForCausalLM", .family = Family::qwen2_moe, .attention_bias = true},
    {.name = "Lfm2ForCausalLM", .norm_eps = 1e-5, .theta = 1e6, .family = Family::lfm2, .tied = true},
    {.name = "Lfm2MoeForCausalLM", .norm_eps = 1e-5, .theta = 1e6, .family = Family::lfm2_moe, .tied = true},
    {.name = "Qwen3_5ForCausalLM",
     .rotary_factor = 0.25,
     .head_dim = 256,
     .family = Family::qwen35,
     .attention_bias = true,
     .partly_rotated = true},
    {.name = "Qwen3_5MoeForCausalLM",
     .rotary_factor = 0.25,
     .head_dim = 256,
     .family = Family::qwen35_moe,
     .attention_bias = true,
     .partly_rotated = true},
    {.name = "GraniteMoeHybridForCausalLM", .family = Family::granite_hybrid, .tied = true, .attention_bias = true},
    {.name = "NemotronHForCausalLM", .norm_eps = 1e-5, .head_dim = 128, .family = Family::nemotron},
    {.name = "FalconH1ForCausalLM", .norm_eps = 1e-5, .theta = 1e5, .family = Family::falcon_h1},
    {.name = "HunYuanDenseV1ForCausalLM", .norm_eps = 1e-5, .family = Family::hunyuan, .attention_bias = true},
    {.name = "Qwen3NextForCausalLM",
     .rotary_factor = 0.25,
     .head_dim = 256,
     .family = Family::qwen3_next,
     .attention_bias = true,
     .partly_rotated = true},
    {.name = "GptOssForCausalLM",
     .norm_eps = 1e-5,
     .theta = 150000.0,
     .head_dim = 64,
     .family = Family::gpt_oss,
     .attention_bias = true},
    {.name = "Gemma4ForCausalLM", .head_dim = 256, .family = Family::gemma4, .tied = true},
    {.name = "Gemma3nForCausalLM", .theta = 1e6, .head_dim = 256, .family = Family::gemma3n, .tied = true},
};

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

std::vector<float> read_divisors(const JsonFields& scaling, const char* key, std::size_t pairs) {
  const Json* list = scaling.find(key);
  const auto is_divisor = [](const Json& one) {
    return one.is_number() && one.get<double>() >= 1e-6 && one.get<double>() <= 1e6;
  };
  if (list == nullptr || !list->is_array() || list->size() != pairs || !std::ranges::all_of(*list, is_divisor))
    scaling.fail(key, fmt::format("expected a list of {} numbers from 1e-6 to 1e6, one of each rotated pair", pairs));
  std::vector<float> divisors;
  for (const Json& one : *list) divisors.push_back(one.get<float>());
  return divisors;
}

/// LongRoPE (arXiv 2402.13753): one list of divisors for contexts up to the original one, and one for longer ones.
/// Transformers takes the list by the length of each sequence. KV that is kept would then lie under two kinds of
/// angles, so the engine takes it by the context that a model is opened with, as llama.cpp does.
void read_longrope(RopeConfig& rope, const ModelConfig& config, const JsonFields& fields, const JsonFields& scaling) {
  const JsonFields& original = fields.find("original_max_position_embeddings") != nullptr ? fields : scaling;
  rope.scaling = RopeScaling::longrope;
  rope.original_context = original.integer_or("original_max_position_embeddings", config.context, 1, kMaxContext);
  const auto pairs = static_cast<std::size_t>(rope.width > 0 ? rope.width : config.head_dim) / 2;
  rope.divisors = read_divisors(scaling, "short_factor", pairs);
  rope.long_divisors = read_divisors(scaling, "long_factor", pairs);
  rope.factor = static_cast<double>(config.context) / rope.original_context;
  rope.attention_factor = scaling.number_or("attention_factor", 0.0, 1e-6, 1e6);
  if (rope.attention_factor != 0.0) return;
  rope.attention_factor =
      rope.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(rope.factor) / std::log(rope.original_context));
}

void read_scaling(RopeConfig& rope, const ModelConfig& config, const FamilyRow& row, const JsonFields& fields,
                  const JsonFields& scaling) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  const std::string type_key = scaling.find("rope_type") != nullptr ? "rope_type" : "type";
  if (type == "default") return;
  if (row.family == Family::hunyuan && type == "dynamic") {  // the base grows once, whatever the context is
    const double width = config.head_dim, alpha = scaling.number("alpha", 1e-3, 1e9);
    rope.theta *= std::pow(alpha, width / std::max(width - 2.0, 1.0));
    return;
  }
  if (row.longrope && (type == "longrope" || type == "su")) return read_longrope(rope, config, fields, scaling);
  if (type != "linear" && type != "llama3" && type != "yarn")
    scaling.fail(type_key, fmt::format("which is not supported; supported are default, linear, llama3, {}yarn",
                                       row.longrope ? "longrope, " : ""));

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

/// Reads which part of a head is rotated, from wherever it stands.
void read_rotary_factor(RopeConfig& rope, const ModelConfig& config, const FamilyRow& row, const JsonFields& fields) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (fields.number_or(kKey, 1.0, 0.0, 1.0) != 1.0 && !row.partly_rotated)
    fields.fail(kKey, "but this architecture's heads are rotated as a whole (1.0)");
  if (fields.find(kKey) == nullptr) return;
  rope.width = static_cast<std::int32_t>(config.head_dim * fields.number(kKey, 0.0, 1.0) + 1e-6);
  if (rope.width < 2 || rope.width % 2 != 0)
    fields.fail(kKey, fmt::format("which rotates {} columns of heads of {}, expected an even number of at least 2",
                                  rope.width, config.head_dim));
  if (rope.width == config.head_dim) rope.width = 0;
}

/// Reads one object of settings: of "rope_scaling", of "rope_parameters", or of one kind of layers in it.
void read_rope_object(RopeConfig& rope, const ModelConfig& config, const FamilyRow& row, const JsonFields& fields,
                      const JsonFields& scaling) {
  read_rotary_factor(rope, config, row, scaling);
  rope.theta = scaling.number_or("rope_theta", rope.theta, kMinTheta, kMaxTheta);
  read_scaling(rope, config, row, fields, scaling);
}

/// Gemma 3 and Olmo 3 have one RoPE for full attention and one for sliding windows; a rope_scaling is of the former
/// alone. `local_theta`: of the latter.
void read_layer_type_ropes(ModelConfig& config, const JsonFields& fields, const FamilyRow& row, double local_theta,
                           const std::string& origin) {
  read_rotary_factor(config.rope, config, row, fields);
  config.rope.theta = fields.number_or("rope_theta", row.theta, kMinTheta, kMaxTheta);
  config.local_rope.theta = fields.number_or("rope_local_base_freq", local_theta, kMinTheta, kMaxTheta);
  if (const Json* parameters = fields.find("rope_parameters")) {
    const JsonFields by_type(*parameters, origin, "rope_parameters.");
    for (const auto& [key, rope] :
         {std::pair("full_attention", &config.rope), std::pair("sliding_attention", &config.local_rope)}) {
      if (const Json* one = by_type.find(key))
        read_rope_object(*rope, config, row, fields, {*one, origin, fmt::format("rope_parameters.{}.", key)});
    }
  }
  if (const Json* scaling = fields.find("rope_scaling"))
    read_rope_object(config.rope, config, row, fields, {*scaling, origin, "rope_scaling."});
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

/// The period of "sliding_window_pattern": a number, or letters of a period, as "LLLG": local, then one global layer.
std::int32_t sliding_period(const JsonFields& fields, std::int32_t usual) {
  constexpr const char* kKey = "sliding_window_pattern";
  const Json* pattern = fields.find(kKey);
  if (pattern == nullptr || !pattern->is_string()) return fields.integer_or(kKey, usual, 1, kMaxContext);
  const auto letters = pattern->get<std::string>();
  if (letters.empty() || letters.find_first_not_of('L') != letters.size() - 1 || letters.back() != 'G')
    fields.fail(kKey, fmt::format("with {}, expected a number, or letters as LLLG", describe(*pattern)));
  return static_cast<std::int32_t>(letters.size());
}

/// Layers that Gemma 3 lists by name, or all but every sixth one; "sliding_window_pattern" names another period. Layers
/// with a window have RoPE of kind `local`, the others of kind `global`.
void read_periodic_windows(ModelConfig& config, const JsonFields& fields, std::int32_t usual, RopeKind local,
                           RopeKind global, std::int32_t usual_window = 4096) {
  std::vector<bool> sliding(static_cast<std::size_t>(config.layers));
  if (const Json* types = fields.find("layer_types")) {
    sliding = sliding_layers(config, fields, *types);
  } else {
    const std::int32_t period = sliding_period(fields, usual);
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
      sliding[static_cast<std::size_t>(layer)] = (layer + 1) % period != 0;
  }
  const bool any = std::ranges::find(sliding, true) != sliding.end();
  if (any && fields.is_null("sliding_window"))
    fields.fail("sliding_window", "expected a number of tokens, as there are layers with a sliding window");
  const std::int32_t window = any ? fields.integer_or("sliding_window", usual_window, 1, kMaxContext) : 0;
  for (std::size_t layer = 0; layer < sliding.size(); ++layer) {
    config.window[layer] = sliding[layer] ? window : 0;
    config.rope_kinds.push_back(sliding[layer] ? local : global);
  }
}

void read_temperature(QueryTemperature& temperature, const RopeConfig& rope, const JsonFields& scaling) {
  temperature.beta = scaling.number_or("llama_4_scaling_beta", 0.0, 0.0, 1e3);
  if (temperature.beta != 0.0 && rope.original_context == 0)
    scaling.fail("llama_4_scaling_beta", "expected original_max_position_embeddings beside it");
  temperature.period = std::max(rope.original_context, 1);
}

/// Reads RoPE's settings, in every spelling. Throws ModelError for what is not supported, by name.
void read_rope(ModelConfig& config, const JsonFields& fields, const FamilyRow& row, const std::string& origin) {
  if (row.family == Family::gemma4) return;  // its heads differ by layer: see gemma4_rope
  if (row.family == Family::gemma3 || row.family == Family::gemma3n)
    return read_layer_type_ropes(config, fields, row, 10000.0, origin);
  if (row.family == Family::olmo3)
    return read_layer_type_ropes(config, fields, row, fields.number_or("rope_theta", row.theta, kMinTheta, kMaxTheta),
                                 origin);
  // Three spellings: "rope_theta" and "rope_scaling" (with "type" or "rope_type"), or both inside "rope_parameters".
  config.rope.theta = fields.number_or("rope_theta", row.theta, kMinTheta, kMaxTheta);
  if (row.rotary_factor != 1.0) config.rope.width = static_cast<std::int32_t>(config.head_dim * row.rotary_factor);
  read_rotary_factor(config.rope, config, row, fields);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.find(key);
    if (value == nullptr || value->empty()) continue;
    const JsonFields scaling(*value, origin, std::string(key) + ".");
    for (const auto& [name, entry] : value->items())
      if (entry.is_object()) scaling.fail(name, "but RoPE that differs by layer type is not supported");
    read_rope_object(config.rope, config, row, fields, scaling);
    read_temperature(config.temperature, config.rope, scaling);
    return;  // as in Transformers, a filled rope_scaling hides rope_parameters
  }
  if (row.family != Family::gpt_oss) return;
  const Json usual = {
      {"rope_type", "yarn"}, {"factor", 32.0}, {"original_max_position_embeddings", 4096}, {"truncate", false}};
  read_rope_object(config.rope, config, row, fields, {usual, origin, "rope_scaling."});
}

/// Granite 4: hybrids have no RoPE.
bool has_rope(const JsonFields& fields) {
  constexpr const char* kKey = "position_embedding_type";
  const std::string type = fields.text_or(kKey, "rope");
  if (type != "rope" && type != "nope") fields.fail(kKey, "expected rope or nope");
  return type == "rope";
}

/// Reads the window of each layer, and which RoPE it has. Throws ModelError for what is not supported, by name.
void read_windows(ModelConfig& config, const JsonFields& fields, Family family) {
  config.window.assign(config.layers, 0);
  if (family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen2_moe)
    return read_qwen_windows(config, fields);
  if (family == Family::gemma3) return read_periodic_windows(config, fields, 6, RopeKind::local, RopeKind::global);
  if (family == Family::gemma3n)
    return read_periodic_windows(config, fields, 5, RopeKind::local, RopeKind::global, 512);
  if (family == Family::gemma4) {
    read_periodic_windows(config, fields, 6, RopeKind::local, RopeKind::global, 512);
    config.window.back() = 0;  // as in Transformers: the last layer attends to everything, whatever is written
    config.rope_kinds.back() = RopeKind::global;
    return;
  }
  if (family == Family::olmo3) return read_periodic_windows(config, fields, 4, RopeKind::local, RopeKind::global);
  if (family == Family::gpt_oss)
    return read_periodic_windows(config, fields, 2, RopeKind::global, RopeKind::global, 128);
  if (family == Family::exaone4 && !fields.is_null("sliding_window"))
    return read_periodic_windows(config, fields, 4, RopeKind::global, RopeKind::none);
  if (family == Family::exaone4 || family == Family::granite || family == Family::glm4) return;
  if (is_lfm2(family) || is_delta_hybrid(family) || family == Family::hunyuan || family == Family::falcon_h1) return;
  if (family == Family::nemotron || (family == Family::granite_hybrid && !has_rope(fields))) {
    config.rope_kinds.assign(static_cast<std::size_t>(config.layers), RopeKind::none);
    return;
  }
  if (family == Family::granite_hybrid) return;
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

// Layers that keep a state instead of keys and values.

constexpr std::int32_t kMaxConvLength = 64;
constexpr std::int32_t kMaxStateHeads = 1 << 12, kMaxStateDim = 1 << 12;

/// The kinds of layers by the names that a configuration has for them; of parts that are no mixers: `none`.
using LayerNames = std::initializer_list<std::pair<std::string_view, LayerKind>>;

std::vector<LayerKind> named_layers(const JsonFields& fields, const char* key, std::int32_t layers, LayerNames names) {
  const Json* types = fields.find(key);
  if (types == nullptr || !types->is_array() || types->size() != static_cast<std::size_t>(layers))
    fields.fail(key, fmt::format("expected a list of {}, one of each layer", layers));
  std::vector<LayerKind> kinds;
  for (const Json& type : *types) {
    const auto* found = std::ranges::find_if(names, [&](const auto& name) { return type == name.first; });
    if (found == names.end()) {
      std::string known;
      for (const auto& [name, kind] : names) known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
      fields.fail(key, fmt::format("with {}, expected one of {}", describe(type), known));
    }
    kinds.push_back(found->second);
  }
  return kinds;
}

/// The bounds of a Mamba2 step: Transformers 5 writes an infinite one as an object.
void read_step_limits(RecurrentConfig& recurrent, const JsonFields& fields) {
  recurrent.least_step = 0.0f;
  recurrent.most_step = std::numeric_limits<float>::max();
  const Json* limits = fields.find("time_step_limit");
  if (limits == nullptr) return;
  if (!limits->is_array() || limits->size() != 2) fields.fail("time_step_limit", "expected two numbers");
  if ((*limits)[0].is_number()) recurrent.least_step = std::max(0.0f, (*limits)[0].get<float>());
  if ((*limits)[1].is_number()) recurrent.most_step = std::max(recurrent.least_step, (*limits)[1].get<float>());
}

RecurrentConfig read_granite_mamba(const JsonFields& fields, std::int32_t width) {
  RecurrentConfig recurrent;
  ScanShape& scan = recurrent.scan;
  scan.heads = fields.integer_or("mamba_n_heads", 128, 1, kMaxStateHeads);
  const std::int32_t inner = fields.integer_or("mamba_expand", 2, 1, 64) * width;
  const Json* head = fields.find("mamba_d_head");
  scan.head_dim = head != nullptr && head->is_number() ? fields.integer("mamba_d_head", 1, kMaxStateDim)
                                                       : std::max(inner / scan.heads, 1);
  if (std::int64_t{scan.heads} * scan.head_dim != inner)
    fields.fail("mamba_n_heads", fmt::format("with heads of {}, expected mamba_expand times the width, {}, in all",
                                             scan.head_dim, inner));
  scan.groups = fields.integer_or("mamba_n_groups", 1, 1, kMaxStateHeads);
  scan.state = fields.integer_or("mamba_d_state", 256, 1, kMaxStateDim);
  if (scan.heads % scan.groups != 0)
    fields.fail("mamba_n_groups", fmt::format("expected a divisor of mamba_n_heads, {}", scan.heads));
  recurrent.conv_length = fields.integer_or("mamba_d_conv", 4, 1, kMaxConvLength);
  recurrent.conv_bias = fields.flag_or("mamba_conv_bias", true);
  recurrent.bias = fields.flag_or("mamba_proj_bias", false);
  recurrent.norm_groups = 1;  // of all groups together
  read_step_limits(recurrent, fields);
  return recurrent;
}

/// Falcon-H1's projections are multiplied on both sides of Mamba2. What multiplies the input of a linear map multiplies
/// its result as well.
RecurrentConfig read_falcon_mamba(const JsonFields& fields, std::int32_t width) {
  const auto factor = [&](const char* key) { return static_cast<float>(fields.number_or(key, 1.0, 1e-6, 1e6)); };
  RecurrentConfig recurrent;
  ScanShape& scan = recurrent.scan;
  const std::int32_t expanded = fields.integer_or("mamba_expand", 2, 1, 64) * width;
  const std::int32_t inner = fields.integer_or("mamba_d_ssm", expanded, 1, kMaxStateHeads * 64);
  scan.heads = fields.integer_or("mamba_n_heads", 128, 1, kMaxStateHeads);
  const Json* head = fields.find("mamba_d_head");
  scan.head_dim = head != nullptr && head->is_number() ? fields.integer("mamba_d_head", 1, kMaxStateDim)
                                                       : std::max(inner / scan.heads, 1);
  if (std::int64_t{scan.heads} * scan.head_dim != inner)
    fields.fail("mamba_n_heads",
                fmt::format("with heads of {}, expected mamba_d_ssm, {}, in all", scan.head_dim, inner));
  scan.groups = fields.integer_or("mamba_n_groups", 1, 1, kMaxStateHeads);
  scan.state = fields.integer_or("mamba_d_state", 256, 1, kMaxStateDim);
  if (scan.heads % scan.groups != 0)
    fields.fail("mamba_n_groups", fmt::format("expected a divisor of mamba_n_heads, {}", scan.heads));
  recurrent.conv_length = fields.integer_or("mamba_d_conv", 4, 1, kMaxConvLength);
  recurrent.conv_bias = fields.flag_or("mamba_conv_bias", true);
  recurrent.bias = fields.flag_or("mamba_proj_bias", false);
  recurrent.norm_groups = fields.flag_or("mamba_rms_norm", false) ? scan.groups : 0;
  recurrent.gate_behind_norm = recurrent.norm_groups > 0 && fields.flag_or("mamba_norm_before_gate", true);
  recurrent.out_multiplier = factor("ssm_out_multiplier");
  const Json* parts = fields.find("ssm_multipliers");
  if (parts != nullptr && (!parts->is_array() || parts->size() != 5 ||
                           !std::ranges::all_of(*parts, [](const Json& one) { return one.is_number(); })))
    fields.fail("ssm_multipliers", "expected five numbers");
  recurrent.multipliers.assign(5, factor("ssm_in_multiplier"));
  for (std::size_t i = 0; parts != nullptr && i < 5; ++i) recurrent.multipliers[i] *= (*parts)[i].get<float>();
  if (std::ranges::all_of(recurrent.multipliers, [](float one) { return one == 1.0f; })) recurrent.multipliers.clear();
  read_step_limits(recurrent, fields);
  return recurrent;
}

std::vector<LayerKind> granite_layers(const JsonFields& fields, std::int32_t layers) {
  const char* key = fields.find("layer_types") != nullptr ? "layer_types" : "layers_block_type";
  return named_layers(fields, key, layers,
                      {{"mamba", LayerKind::mamba2},
                       {"linear_attention", LayerKind::mamba2},
                       {"attention", LayerKind::attention},
                       {"full_attention", LayerKind::attention}});
}

RecurrentConfig read_nemotron_mamba(const JsonFields& fields) {
  RecurrentConfig recurrent;
  ScanShape& scan = recurrent.scan;
  scan.heads = fields.integer_or("mamba_num_heads", 128, 1, kMaxStateHeads);
  scan.head_dim = fields.integer_or("mamba_head_dim", 64, 1, kMaxStateDim);
  scan.groups = fields.integer_or("n_groups", 8, 1, kMaxStateHeads);
  scan.state = fields.integer_or("ssm_state_size", 128, 1, kMaxStateDim);
  if (scan.heads % scan.groups != 0)
    fields.fail("n_groups", fmt::format("expected a divisor of mamba_num_heads, {}", scan.heads));
  recurrent.conv_length = fields.integer_or("conv_kernel", 4, 1, kMaxConvLength);
  recurrent.conv_bias = fields.flag_or("use_conv_bias", true);
  recurrent.bias = fields.flag_or("use_bias", false);
  recurrent.norm_groups = scan.groups;
  read_step_limits(recurrent, fields);
  return recurrent;
}

/// The kinds of Nemotron's parts, by letters or by names: M, *, -, E.
struct NemotronLayers {
  std::vector<LayerKind> mixers;
  std::vector<std::int32_t> dense;  // those without experts
};

NemotronLayers nemotron_layers(const JsonFields& fields) {
  constexpr const char *kLetters = "hybrid_override_pattern", *kNames = "layers_block_type";
  std::string pattern = fields.text_or(kLetters, "");
  if (const Json* names = fields.find(kNames); names != nullptr && names->is_array() && !names->empty()) {
    pattern.clear();
    for (const Json& name : *names) {
      const bool mamba = name == "mamba" || name == "linear_attention";
      const bool attention = name == "attention" || name == "full_attention";
      if (!mamba && !attention && name != "mlp" && name != "moe")
        fields.fail(kNames, fmt::format("with {}, expected mamba, attention, mlp or moe", describe(name)));
      pattern += mamba ? 'M' : attention ? '*' : name == "moe" ? 'E' : '-';
    }
  }
  if (pattern.empty() || pattern.find_first_not_of("M*-E") != pattern.npos || pattern.size() > 4096)
    fields.fail(kLetters, "expected letters of M (Mamba2), * (attention), - (MLP) and E (experts), one of each layer");
  NemotronLayers layers;
  for (std::size_t layer = 0; layer < pattern.size(); ++layer) {
    const char letter = pattern[layer];
    layers.mixers.push_back(letter == 'M' ? LayerKind::mamba2 : letter == '*' ? LayerKind::attention : LayerKind::none);
    if (letter != 'E') layers.dense.push_back(static_cast<std::int32_t>(layer));
  }
  return layers;
}

/// Which layers have attention and which are of another kind, from their names in "layer_types", or from
/// `is_attention`; `name`: of the other kind.
std::vector<LayerKind> layer_types(const JsonFields& fields, std::int32_t layers, const char* name, LayerKind other,
                                   const std::function<bool(std::int32_t)>& is_attention) {
  const Json* types = fields.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != static_cast<std::size_t>(layers)))
    fields.fail("layer_types", fmt::format("expected a list of {}, one of each layer", layers));
  std::vector<LayerKind> kinds;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    if (types == nullptr) {
      kinds.push_back(is_attention(layer) ? LayerKind::attention : other);
      continue;
    }
    const Json& type = (*types)[static_cast<std::size_t>(layer)];
    if (type != "full_attention" && type != name)
      fields.fail("layer_types", fmt::format("with {}, expected full_attention or {}", describe(type), name));
    kinds.push_back(type == "full_attention" ? LayerKind::attention : other);
  }
  return kinds;
}

std::vector<LayerKind> lfm2_layers(const JsonFields& fields, std::int32_t layers) {
  const bool listed = fields.find("full_attn_idxs") != nullptr;
  const std::vector<std::int32_t> attention = fields.integers("full_attn_idxs", 0, layers - 1);
  return layer_types(fields, layers, "conv", LayerKind::short_convolution, [&](std::int32_t layer) {
    return !listed || std::ranges::find(attention, layer) != attention.end();
  });
}

RecurrentConfig read_lfm2(const JsonFields& fields) {
  RecurrentConfig recurrent;
  recurrent.conv_length = fields.integer_or("conv_L_cache", 3, 1, kMaxConvLength);
  recurrent.conv_bias = recurrent.bias = fields.flag_or("conv_bias", false);
  return recurrent;
}

/// The width of LFM2's MLP, which its configuration names before it is adjusted.
std::int32_t lfm2_ffn_width(const JsonFields& fields, std::int32_t width) {
  if (!fields.flag_or("block_auto_adjust_ff_dim", true)) return width;
  auto adjusted = static_cast<std::int32_t>(2.0 * width / 3.0);
  if (!fields.is_null("block_ffn_dim_multiplier"))
    adjusted = static_cast<std::int32_t>(fields.number_or("block_ffn_dim_multiplier", 1.0, 1e-3, 1e3) * adjusted);
  const std::int32_t multiple = fields.integer_or("block_multiple_of", 256, 1, 1 << 20);
  return std::max(1, (adjusted + multiple - 1) / multiple) * multiple;
}

std::vector<LayerKind> delta_layers(const JsonFields& fields, std::int32_t layers) {
  const std::int32_t period = fields.integer_or("full_attention_interval", 4, 1, 1 << 12);
  return layer_types(fields, layers, "linear_attention", LayerKind::delta_net,
                     [&](std::int32_t layer) { return (layer + 1) % period == 0; });
}

RecurrentConfig read_delta_net(const JsonFields& fields) {
  RecurrentConfig recurrent;
  recurrent.conv_length = fields.integer_or("linear_conv_kernel_dim", 4, 1, kMaxConvLength);
  DeltaShape& delta = recurrent.delta;
  delta.key_heads = fields.integer_or("linear_num_key_heads", 16, 1, kMaxStateHeads);
  delta.value_heads = fields.integer_or("linear_num_value_heads", 32, 1, kMaxStateHeads);
  delta.key_dim = fields.integer_or("linear_key_head_dim", 128, 1, kMaxStateDim);
  delta.value_dim = fields.integer_or("linear_value_head_dim", 128, 1, kMaxStateDim);
  delta.tiled = fields.flag_or("linear_heads_tiled", false);  // files of llama.cpp's converter
  if (delta.value_heads % delta.key_heads != 0)
    fields.fail("linear_num_value_heads",
                fmt::format("expected a multiple of linear_num_key_heads, {}", delta.key_heads));
  return recurrent;
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

const FamilyRow& read_family(ModelConfig& config, const JsonFields& fields) {
  std::string supported;
  for (const FamilyRow& row : kFamilies) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", row.name);

  const Json* names = fields.find("architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->front().is_string())
    fields.fail("architectures", "expected a list of one of " + supported);
  config.architecture = names->front().get<std::string>();
  for (const FamilyRow& row : kFamilies)
    if (row.name == config.architecture) return row;
  fields.fail("architectures",
              fmt::format("with {}, which is not supported; supported are {}", describe(names->front()), supported));
}

void reject_other_activations(const JsonFields& fields, Family family) {
  if (family == Family::nemotron) {
    if (fields.text_or("mlp_hidden_act", "relu2") != "relu2")
      fields.fail("mlp_hidden_act", "but only relu2 is supported for this architecture");
    return;
  }
  if (is_gemma(family)) {
    if (fields.text_or("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
      fields.fail("hidden_activation", "but only gelu_pytorch_tanh is supported for this architecture");
    return;
  }
  const std::string activation = fields.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") fields.fail("hidden_act", "but only silu is supported");
}

bool has_experts(Family family) {
  if (family == Family::granite_hybrid || family == Family::nemotron) return true;
  return family == Family::mixtral || family == Family::qwen3_moe || family == Family::qwen2_moe ||
         family == Family::lfm2_moe || family == Family::qwen35_moe || family == Family::qwen3_next ||
         family == Family::gpt_oss || family == Family::gemma4;
}

/// The key of a mixture's number of experts; empty: the family has none. Newer configurations of Qwen3 have Mixtral's,
/// and those of gpt-oss may have Qwen's.
std::string experts_key(const JsonFields& fields, Family family) {
  if (family == Family::mixtral || family == Family::granite_hybrid) return "num_local_experts";
  if (family == Family::nemotron) return "n_routed_experts";
  if (!has_experts(family)) return "";
  return fields.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
}

/// What would change the numbers and is not computed here must never be ignored.
void reject_unsupported(const JsonFields& fields, const FamilyRow& row) {
  const Family family = row.family;
  reject_other_activations(fields, family);
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const bool known = key == experts_key(fields, family);
    if (!known && fields.integer_or(key, 0, 0, kMaxFfnWidth) != 0)
      fields.fail(key, "but mixtures of experts are not supported for this architecture");
  }
  if (const Json* rotated = fields.find("no_rope_layers"); rotated != nullptr && family != Family::smollm3) {
    for (const Json& layer : *rotated)
      if (layer != 1) fields.fail("no_rope_layers", "but layers without RoPE (NoPE) are not supported");
  }
  if (!row.mlp_bias && fields.flag_or("mlp_bias", false))
    fields.fail("mlp_bias", "which this architecture does not have");
  if (family == Family::gemma3 || family == Family::gemma3n) {
    if (fields.number_or("attn_logit_softcapping", 0.0, 0.0, 1e30) != 0.0)
      fields.fail("attn_logit_softcapping", "but soft caps of attention scores are not supported");
    if (fields.flag_or("use_bidirectional_attention", false))
      fields.fail("use_bidirectional_attention", "but only causal attention is supported");
  }
  if (family == Family::gemma4) {
    if (fields.text_or("use_bidirectional_attention", "vision") != "vision")  // between the tokens of a picture
      fields.fail("use_bidirectional_attention", "but only causal attention is supported");
    if (fields.find("rope_scaling") != nullptr)
      fields.fail("rope_scaling", "but the RoPE of this architecture is read from rope_parameters");
  }
  if (!row.attention_bias && fields.flag_or("attention_bias", false))
    fields.fail("attention_bias", "which this architecture does not have");
}

/// The widths of the MLPs: one for all layers, or a list.
std::vector<std::int32_t> ffn_widths(const JsonFields& fields, std::int32_t layers) {
  constexpr const char* kKey = "intermediate_size";
  const Json* listed = fields.find(kKey);
  if (listed == nullptr || !listed->is_array())
    return std::vector<std::int32_t>(static_cast<std::size_t>(layers), fields.integer(kKey, 1, kMaxFfnWidth));
  std::vector<std::int32_t> widths = fields.integers(kKey, 1, kMaxFfnWidth);
  if (widths.size() != static_cast<std::size_t>(layers))
    fields.fail(kKey, fmt::format("with {} numbers, expected {}, one of each layer", widths.size(), layers));
  return widths;
}

void read_dimensions(ModelConfig& config, const JsonFields& fields, const FamilyRow& row) {
  config.layers = row.family == Family::nemotron ? static_cast<std::int32_t>(nemotron_layers(fields).mixers.size())
                                                 : fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.width = fields.integer("hidden_size", 1, kMaxWidth);
  config.heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = fields.integer_or("num_key_value_heads", config.heads, 1, kMaxHeads);
  const bool lfm2_name = is_lfm2(row.family) && fields.find("block_ff_dim") != nullptr;
  const char* ffn_key = lfm2_name                              ? "block_ff_dim"
                        : row.family == Family::granite_hybrid ? "shared_intermediate_size"
                                                               : "intermediate_size";
  if (row.family == Family::gemma3n) {  // layer by layer
    config.shapes.ffn_width = ffn_widths(fields, config.layers);
    config.ffn_width = std::ranges::max(config.shapes.ffn_width);
  } else if (row.family == Family::qwen35_moe) {  // it has no MLP
    config.ffn_width = fields.integer_or("intermediate_size", 1, 1, kMaxFfnWidth);
  } else {
    config.ffn_width = fields.integer(ffn_key, 1, kMaxFfnWidth);
  }
  config.vocabulary = fields.integer("vocab_size", 1, kMaxVocabulary);
  config.context = fields.integer("max_position_embeddings", 1, kMaxContext);
  if (row.family == Family::lfm2) config.ffn_width = lfm2_ffn_width(fields, config.ffn_width);
  const char* eps = is_lfm2(row.family)              ? "norm_eps"
                    : row.family == Family::nemotron ? "layer_norm_epsilon"
                                                     : "rms_norm_eps";
  config.norm_eps = static_cast<float>(fields.number_or(eps, row.norm_eps, 0.0, 1.0));
  config.tied_embeddings = fields.flag_or("tie_word_embeddings", row.tied);

  if (config.heads % config.kv_heads != 0)
    fields.fail("num_key_value_heads", fmt::format("expected a divisor of num_attention_heads, {}", config.heads));

  if (fields.find("head_dim") != nullptr) {
    config.head_dim = fields.integer("head_dim", 2, kMaxHeadDim);
  } else if (row.head_dim != 0 && !fields.is_null("head_dim")) {
    config.head_dim = row.head_dim;  // whatever the width is
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
  if (family == Family::qwen2_moe) config.attention_bias = fields.flag_or("qkv_bias", true);
  if (family == Family::glm4) {  // its output projection has none
    config.attention_bias = fields.flag_or("attention_bias", true);
    config.output_bias = false;
  }
  if (family == Family::gpt_oss) config.attention_bias = config.output_bias = fields.flag_or("attention_bias", true);
  config.sinks = family == Family::gpt_oss;
  config.mlp_bias = fields.flag_or("mlp_bias", false);
  config.qk_norm = family == Family::qwen3 || family == Family::qwen3_moe || is_gemma(family) ||
                   family == Family::exaone4 || family == Family::olmo3 || is_lfm2(family) || is_delta_hybrid(family);
  config.qk_norm_of_row = family == Family::olmo3;
  if (family == Family::hunyuan) config.qk_norm = config.norm_behind_rope = fields.flag_or("use_qk_norm", true);
  config.pre_norms = family != Family::exaone4 && family != Family::olmo3;
  config.post_norms = is_gemma(family) || family == Family::glm4 || !config.pre_norms;
  config.interleaved_heads = family == Family::glm4;
}

constexpr std::int32_t kMaxExperts = 4096;

/// What a family's configurations leave out of a mixture.
struct MixtureDefaults {
  std::int32_t experts, chosen, width, shared;
};

MixtureDefaults mixture_defaults(Family family) {
  switch (family) {
    case Family::mixtral:
      return {8, 2, 0, 0};
    case Family::gpt_oss:
      return {128, 4, 0, 0};
    case Family::qwen2_moe:
      return {60, 4, 1408, 5632};
    case Family::qwen35_moe:
      return {256, 8, 512, 512};
    case Family::qwen3_next:
      return {512, 10, 512, 512};
    case Family::lfm2_moe:
      return {32, 4, 1792, 0};
    default:
      return {128, 8, 768, 0};
  }
}

/// Layers of Qwen's that have an MLP all the same: listed ones, and all but every n-th one.
std::vector<std::int32_t> qwen_dense_layers(const ModelConfig& config, const JsonFields& fields) {
  const std::int32_t period = fields.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<std::int32_t> dense = fields.integers("mlp_only_layers", 0, config.layers - 1);
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    if ((layer + 1) % period != 0) dense.push_back(layer);
  std::ranges::sort(dense);
  dense.erase(std::unique(dense.begin(), dense.end()), dense.end());
  dense.shrink_to_fit();
  return dense;
}

/// LFM2's router: the sigmoids of its logits, of which a bias chooses and which are the weights.
void read_lfm2_router(MixtureConfig& mixture, const JsonFields& fields, std::int32_t layers) {
  mixture.sigmoid = true;
  mixture.choice_bias = fields.flag_or("use_expert_bias", true);
  mixture.normalized = fields.flag_or("norm_topk_prob", true);
  mixture.weight_sum_eps = 1e-6f;
  mixture.weight_scale = static_cast<float>(fields.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));
  const std::int32_t dense = fields.integer_or("num_dense_layers", 2, 0, kMaxLayers);
  for (std::int32_t layer = 0; layer < std::min(dense, layers); ++layer) mixture.dense_layers.push_back(layer);
}

/// Granite's mixture: the usual MLP is the expert that all tokens share, and none of its experts is there in small
/// models.
MixtureConfig granite_mixture(const JsonFields& fields, std::int32_t shared_width) {
  MixtureConfig mixture;
  mixture.experts = fields.integer_or("num_local_experts", 0, 0, kMaxExperts);
  if (mixture.experts == 0) return mixture;
  mixture.chosen = fields.integer("num_experts_per_tok", 1, kMaxExperts);
  mixture.ffn_width = fields.integer("intermediate_size", 1, kMaxFfnWidth);
  mixture.shared_width = shared_width;
  mixture.shared_gate = false;
  return mixture;
}

MixtureConfig nemotron_mixture(const JsonFields& fields, const NemotronLayers& layers) {
  MixtureConfig mixture;
  if (layers.dense.size() == layers.mixers.size()) return mixture;
  for (const char* key : {"n_group", "topk_group"})
    if (fields.integer_or(key, 1, 1, kMaxExperts) != 1) fields.fail(key, "but groups of experts are not supported");
  mixture.experts = fields.integer("n_routed_experts", 1, kMaxExperts);
  mixture.chosen = fields.integer("num_experts_per_tok", 1, kMaxExperts);
  mixture.ffn_width = fields.integer("moe_intermediate_size", 1, kMaxFfnWidth);
  mixture.latent_width = fields.integer_or("moe_latent_size", 0, 1, kMaxWidth);
  mixture.shared_width = fields.integer_or("moe_shared_expert_intermediate_size", 0, 1, kMaxFfnWidth);
  mixture.shared_gate = false;
  mixture.sigmoid = mixture.choice_bias = true;
  mixture.normalized = fields.flag_or("norm_topk_prob", true);
  mixture.weight_sum_eps = 1e-20f;
  mixture.weight_scale = static_cast<float>(fields.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));
  mixture.dense_layers = layers.dense;
  return mixture;
}

/// Reads the experts of Gemma 4, which run in addition to the MLP.
MixtureConfig gemma4_mixture(const JsonFields& fields) {
  MixtureConfig mixture;
  if (!fields.flag_or("enable_moe_block", false)) return mixture;
  mixture.experts = fields.integer("num_experts", 1, kMaxExperts);
  mixture.chosen = fields.integer("top_k_experts", 1, kMaxExperts);
  mixture.ffn_width = fields.integer("moe_intermediate_size", 1, kMaxFfnWidth);
  mixture.beside_mlp = true;
  if (mixture.chosen > mixture.experts)
    fields.fail("top_k_experts", fmt::format("expected at most {}, the number of experts", mixture.experts));
  return mixture;
}

void read_mixture(ModelConfig& config, const JsonFields& fields, Family family) {
  MixtureConfig& mixture = config.mixture;
  if (family == Family::gemma4) {
    mixture = gemma4_mixture(fields);
    return;
  }
  const MixtureDefaults absent = mixture_defaults(family);
  if (family == Family::granite_hybrid) {
    mixture = granite_mixture(fields, config.ffn_width);
  } else if (family == Family::nemotron) {
    mixture = nemotron_mixture(fields, nemotron_layers(fields));
  } else if (family == Family::mixtral || family == Family::gpt_oss) {
    mixture.biases = family == Family::gpt_oss;
    mixture.experts = fields.integer_or(experts_key(fields, family), absent.experts, 1, kMaxExperts);
    mixture.chosen = fields.integer_or("num_experts_per_tok", absent.chosen, 1, kMaxExperts);
    mixture.ffn_width = config.ffn_width;
  } else {
    mixture.experts = fields.integer_or(experts_key(fields, family), absent.experts, 1, kMaxExperts);
    mixture.chosen = fields.integer_or("num_experts_per_tok", absent.chosen, 1, kMaxExperts);
    mixture.ffn_width = fields.integer_or("moe_intermediate_size", absent.width, 1, kMaxFfnWidth);
    if (absent.shared > 0)
      mixture.shared_width = fields.integer_or("shared_expert_intermediate_size", absent.shared, 1, kMaxFfnWidth);
    if (family == Family::lfm2_moe) {
      read_lfm2_router(mixture, fields, config.layers);
    } else {
      // Qwen3.5 has no such keys: all of its layers have a mixture, whose weights sum up to 1.
      mixture.normalized = fields.flag_or("norm_topk_prob", is_delta_hybrid(family));
      if (family != Family::qwen35_moe) mixture.dense_layers = qwen_dense_layers(config, fields);
    }
  }
  if (mixture.chosen > mixture.experts)
    fields.fail("num_experts_per_tok", fmt::format("expected at most {}, the number of experts", mixture.experts));
}

/// What Gemma does and the other families do not.
void read_gemma(ModelConfig& config, const JsonFields& fields, Family family) {
  config.activation = GateActivation::gelu_tanh;
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.width)));
  config.logit_cap = static_cast<float>(fields.number_or("final_logit_softcapping", 0.0, 0.0, 1e30));
  if (family == Family::gemma3) {
    config.norm_offset = 1.0f;
    config.query_divisor = static_cast<float>(fields.number_or("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
    return;
  }
  config.score_multiplier = 1.0f;
  config.value_norm = true;
  config.layer_scales = family == Family::gemma4;
  constexpr const char* kWidth = "hidden_size_per_layer_input";
  const std::int32_t width = fields.is_null(kWidth) ? 0 : fields.integer_or(kWidth, 256, 0, kMaxWidth);
  if (std::int64_t{width} * config.layers > INT32_MAX)
    fields.fail(kWidth, fmt::format("which is too much for {} layers", config.layers));
  if (width > 0)
    config.token_input = {width, fields.integer_or("vocab_size_per_layer_input", 262144, 1, kMaxVocabulary)};
}

/// The normal distribution's quantile: below how many standard deviations from the mean the fraction lies.
double normal_quantile(double fraction) {
  double low = -10.0, high = 10.0;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2.0;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < fraction ? low : high) = middle;
  }
  return low;
}

/// Gemma 3n's sparse layers: the fraction of the gates that becomes 0. Files of llama.cpp's converter have the
/// deviations in its place; null: the layer is not sparse.
std::vector<float> gate_deviations(const JsonFields& fields, std::int32_t layers) {
  constexpr const char *kFractions = "activation_sparsity_pattern", *kDeviations = "activation_sparsity_deviations";
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const bool converted = fields.find(kDeviations) != nullptr;
  const char* key = converted ? kDeviations : kFractions;
  const Json* listed = fields.find(key);
  std::vector<float> deviations(static_cast<std::size_t>(layers), kNone);
  if (listed == nullptr) {  // as in Transformers
    for (std::int32_t layer = 0; layers > 10 && layer < 10; ++layer)
      deviations[static_cast<std::size_t>(layer)] = static_cast<float>(normal_quantile(0.95));
    return deviations;
  }
  if (!listed->is_array() || listed->size() != deviations.size())
    fields.fail(key, fmt::format("expected a list of {}, one of each layer", layers));
  for (std::size_t layer = 0; layer < deviations.size(); ++layer) {
    const Json& one = (*listed)[layer];
    if (converted && one.is_null()) continue;
    const double value = one.is_number() ? one.get<double>() : -1e9;
    if (converted ? !(std::abs(value) <= 10.0) : !(value >= 0.0 && value < 1.0))
      fields.fail(key, fmt::format("with {} for layer {}, expected {}", describe(one), layer,
                                   converted ? "-10 to 10" : "at least 0 and less than 1"));
    if (converted || value > 0.0)
      deviations[layer] = static_cast<float>(converted ? value : normal_quantile(static_cast<float>(value)));
  }
  return deviations;
}

void read_altup(ModelConfig& config, const JsonFields& fields) {
  constexpr std::int32_t kMaxStreams = 16;
  if (config.token_input.width == 0)
    fields.fail("hidden_size_per_layer_input", "expected at least 1 for this architecture");
  config.altup.streams = fields.integer_or("altup_num_inputs", 4, 2, kMaxStreams);
  config.altup.active = fields.integer_or("altup_active_idx", 0, 0, config.altup.streams - 1);
  config.altup.scaled = fields.flag_or("altup_correct_scale", true);
  config.altup.laurel_rank = fields.integer_or("laurel_rank", 64, 1, kMaxWidth);
  config.shapes.gate_deviations = gate_deviations(fields, config.layers);
}

/// The heads of each layer: layers that attend to everything have their own, or "per_layer_config" lists some.
LayerShapes gemma4_heads(const ModelConfig& config, const JsonFields& fields, const std::string& origin) {
  LayerShapes shapes;
  const Json* listed = fields.find("per_layer_config");
  const bool keys_as_values = fields.flag_or("attention_k_eq_v", false);
  const std::int32_t global = fields.integer_or("global_head_dim", 512, 2, kMaxHeadDim);
  const std::int32_t heads = fields.integer_or("num_global_key_value_heads", config.kv_heads, 1, kMaxHeads);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const bool full = config.rope_kind(layer) == RopeKind::global;
    std::int32_t head_dim = full && listed == nullptr ? global : config.head_dim;
    std::int32_t kv_heads = full && listed == nullptr && keys_as_values ? heads : config.kv_heads;
    const std::string place = fmt::format("per_layer_config.{}.", layer);
    if (listed != nullptr) {
      const JsonFields all(*listed, origin, "per_layer_config.");
      if (const Json* own = all.find(std::to_string(layer))) {
        const JsonFields of_layer(*own, origin, place);
        for (const auto& [key, value] : own->items())
          if (key != "head_dim" && key != "num_key_value_heads")
            of_layer.fail(key, "but of what may differ by layer, head_dim and num_key_value_heads are supported");
        head_dim = of_layer.integer_or("head_dim", head_dim, 2, kMaxHeadDim);
        kv_heads = of_layer.integer_or("num_key_value_heads", kv_heads, 1, kMaxHeads);
      }
    }
    if (head_dim % 2 != 0)
      throw ModelError(
          fmt::format("{}: layer {} has heads of {}, expected an even width for RoPE", origin, layer, head_dim));
    if (config.heads % kv_heads != 0)
      throw ModelError(fmt::format("{}: layer {} has {} KV heads, expected a divisor of num_attention_heads, {}",
                                   origin, layer, kv_heads, config.heads));
    shapes.head_dim.push_back(head_dim);
    shapes.kv_heads.push_back(kv_heads);
    shapes.keys_as_values.push_back(full && keys_as_values);
  }
  return shapes;
}

/// The last layers, `shared` ones, read the keys and values of the last one of their kind before them. [L]
std::vector<std::int32_t> kv_layers(const ModelConfig& config, const JsonFields& fields, std::int32_t shared) {
  const std::int32_t own = config.layers - shared;
  std::vector<std::int32_t> layers;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    std::int32_t read = layer;
    while (read >= 0 && (read >= own || config.rope_kind(read) != config.rope_kind(layer)) && layer >= own) --read;
    if (read < 0)
      fields.fail("num_kv_shared_layers",
                  fmt::format("but layer {} finds no layer of its kind whose keys and values it could read", layer));
    layers.push_back(read);
  }
  return layers;
}

/// Layers that read the keys and values of others may have a wider MLP.
LayerShapes gemma4_shapes(const ModelConfig& config, const JsonFields& fields, const std::string& origin) {
  LayerShapes shapes = gemma4_heads(config, fields, origin);
  const std::int32_t shared = fields.integer_or("num_kv_shared_layers", 0, 0, config.layers - 1);
  const std::int32_t own = config.layers - shared;
  const bool wide = fields.flag_or("use_double_wide_mlp", false);
  shapes.kv_layer = kv_layers(config, fields, shared);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const std::int32_t read = shapes.kv_layer[static_cast<std::size_t>(layer)];
    shapes.ffn_width.push_back(wide && layer >= own ? 2 * config.ffn_width : config.ffn_width);
    const auto one = static_cast<std::size_t>(read), other = static_cast<std::size_t>(layer);
    if (shapes.head_dim[one] != shapes.head_dim[other] || shapes.kv_heads[one] != shapes.kv_heads[other])
      fields.fail(
          "num_kv_shared_layers",
          fmt::format("but layer {} has other heads than layer {}, whose keys and values it reads", layer, read));
  }
  return shapes;
}

/// One RoPE for full attention and one for sliding windows, each over the whole width of its heads. In a proportional
/// one, the last pairs do not turn.
RopeConfig gemma4_rope(const ModelConfig& config, RopeKind kind, const JsonFields& fields, const std::string& origin) {
  const auto first = std::ranges::find(config.rope_kinds, kind);
  if (first == config.rope_kinds.end()) return {};
  const std::int32_t width = config.head_dim_of(static_cast<std::int32_t>(first - config.rope_kinds.begin()));
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    if (config.rope_kind(layer) == kind && config.head_dim_of(layer) != width)
      throw ModelError(fmt::format("{}: layer {} has heads of {}, expected {}, as the layers of its kind before it",
                                   origin, layer, config.head_dim_of(layer), width));
  const Json usual = {
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
      {"full_attention", {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1000000.0}}}};
  const Json* given = fields.find("rope_parameters");
  const JsonFields by_type(given != nullptr ? *given : usual, origin, "rope_parameters.");
  const char* key = kind == RopeKind::global ? "full_attention" : "sliding_attention";
  const Json* one = by_type.find(key);
  if (one == nullptr) by_type.fail(key, "expected the RoPE of these layers");
  const JsonFields settings(*one, origin, fmt::format("rope_parameters.{}.", key));
  RopeConfig rope;
  rope.width = width;
  rope.theta = settings.number("rope_theta", kMinTheta, kMaxTheta);
  const std::string type = settings.text_or("rope_type", "default");
  if (type == "default") return rope;
  if (type != "proportional") settings.fail("rope_type", "which is not supported; supported are default, proportional");
  rope.factor = settings.number_or("factor", 1.0, 1e-6, 1e6);
  if (rope.factor != 1.0) rope.scaling = RopeScaling::linear;
  const double part = settings.number_or("partial_rotary_factor", 1.0, 0.0, 1.0);
  rope.turning = static_cast<std::int32_t>(part * width / 2.0 + 1e-6);
  if (rope.turning == 0)
    settings.fail("partial_rotary_factor", fmt::format("which leaves no pair of heads of {} to turn", width));
  return rope;
}

/// The gate of gpt-oss.
void read_clamped_gate(ModelConfig& config, const JsonFields& fields) {
  config.gate_limit = static_cast<float>(fields.number_or("swiglu_limit", 7.0, 1e-6, 1e6));
  config.gate_slope = static_cast<float>(fields.number_or("swiglu_alpha", 1.702, 1e-6, 1e6));
}

/// The multipliers of Granite.
void read_multipliers(ModelConfig& config, const JsonFields& fields) {
  const auto number = [&](const char* key) { return fields.number_or(key, 1.0, 1e-6, 1e6); };
  config.embedding_scale = static_cast<float>(number("embedding_multiplier"));
  config.residual_scale = static_cast<float>(number("residual_multiplier"));
  config.score_multiplier = static_cast<float>(number("attention_multiplier"));
  config.logit_scale = static_cast<float>(1.0 / number("logits_scaling"));
}

/// Falcon-H1's multipliers outside of Mamba2. Those of attention's input and of keys multiply scores, and that of its
/// input multiplies values, too.
void read_falcon_multipliers(ModelConfig& config, const JsonFields& fields) {
  const auto number = [&](const char* key) { return fields.number_or(key, 1.0, 1e-6, 1e6); };
  const double in = number("attention_in_multiplier");
  config.embedding_scale = static_cast<float>(number("embedding_multiplier"));
  config.logit_scale = static_cast<float>(number("lm_head_multiplier"));
  config.score_multiplier =
      static_cast<float>(in * in * number("key_multiplier") / std::sqrt(static_cast<double>(config.head_dim)));
  config.attention_multiplier = static_cast<float>(in * number("attention_out_multiplier"));
  const Json* mlp = fields.find("mlp_multipliers");
  if (mlp == nullptr) return;
  if (!mlp->is_array() || mlp->size() != 2 || !(*mlp)[0].is_number() || !(*mlp)[1].is_number())
    fields.fail("mlp_multipliers", "expected two numbers");
  config.gate_multiplier = (*mlp)[0].get<float>();
  config.feed_multiplier = (*mlp)[1].get<float>();
}

std::size_t count_distinct(std::span<const std::int32_t> ids) {
  std::vector<std::int32_t> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

}  // namespace

float QueryTemperature::at(std::int32_t position) const {
  return static_cast<float>(1.0 + beta * std::log(1.0 + std::floor(static_cast<double>(position) / period)));
}

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

namespace {

/// A text model inside the configuration of one that also sees or hears, by its "model_type", and what such
/// configurations leave out because Transformers has a default for it.
struct InnerModel {
  std::string_view type;
  std::string_view name;  // of the class that it is alone
  const char* defaults = "{}";
};
constexpr InnerModel kInnerModels[] = {
    {"gemma3_text", "Gemma3ForCausalLM",
     R"({"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
         "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26})"},
    {"gemma3n_text", "Gemma3nForCausalLM",
     R"({"vocab_size": 262400, "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 32768,
         "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35})"},
    {"gemma4_text", "Gemma4ForCausalLM",
     R"({"vocab_size": 262144, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
         "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30})"},
    {"mistral", "MistralForCausalLM"},
    {"ministral3", "Ministral3ForCausalLM"},
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"glm4", "Glm4ForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
    {"lfm2", "Lfm2ForCausalLM"},
    {"lfm2_moe", "Lfm2MoeForCausalLM"},
    {"qwen3_5_text", "Qwen3_5ForCausalLM"},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
};

/// Returns the configuration of the text model of `root`; null: it is one itself.
Json inner_model(const Json& root, const std::string& origin) {
  const auto found = root.is_object() ? root.find("text_config") : root.end();
  if (!root.is_object() || found == root.end() || !found->is_object()) return nullptr;
  const JsonFields fields(*found, origin, "text_config.");
  const std::string type = fields.text_or("model_type", "");
  const auto* model = std::ranges::find(kInnerModels, type, &InnerModel::type);
  if (model == std::end(kInnerModels)) {
    std::string known;
    for (const InnerModel& one : kInnerModels) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.type);
    fields.fail("model_type", "which is not supported inside another model; supported are " + known);
  }
  Json inner = Json::parse(model->defaults);
  inner.update(*found);
  inner["architectures"] = {std::string(model->name)};
  for (const char* key : {"eos_token_id", "bos_token_id", "tie_word_embeddings", "quantization_config"})
    if (root.contains(key) && (!inner.contains(key) || inner[key].is_null())) inner[key] = root[key];
  return inner;
}

/// The parts of a model that have a configuration of their own and are not run.
std::vector<std::string> other_parts(const Json& root) {
  std::vector<std::string> parts;
  for (const auto& [key, name] :
       {std::pair("vision_config", "a vision tower"), std::pair("audio_config", "an audio tower")})
    if (root.is_object() && root.contains(key) && root[key].is_object()) parts.emplace_back(name);
  return parts;
}

/// Python writes infinite numbers as words that JSON does not have, as in "time_step_limit": [0.0, Infinity].
std::string without_infinity(std::string_view json) {
  constexpr std::string_view kWord = "Infinity";
  std::string text;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"' && (i == 0 || json[i - 1] != '\\')) quoted = !quoted;
    if (!quoted && json.substr(i).starts_with(kWord)) {
      text += "null";
      i += kWord.size() - 1;
      continue;
    }
    text += json[i];
  }
  return text;
}

}  // namespace

std::vector<std::string_view> model_classes() {
  std::vector<std::string_view> names;
  for (const FamilyRow& row : kFamilies) names.push_back(row.name);
  return names;
}

ModelConfig parse_config(std::string_view json, const std::string& origin) {
  const JsonDocument root = parse_json(without_infinity(json), origin);
  const Json inner = inner_model(*root, origin);
  const JsonFields fields(inner.is_null() ? *root : inner, origin);

  ModelConfig config;
  if (!inner.is_null()) config.left_out = other_parts(*root);
  const FamilyRow& row = read_family(config, fields);
  const Family family = row.family;
  reject_unsupported(fields, row);
  read_dimensions(config, fields, row);
  read_biases_and_norms(config, fields, family);
  if (is_gemma(family)) read_gemma(config, fields, family);
  if (family == Family::granite || family == Family::granite_hybrid) read_multipliers(config, fields);
  if (family == Family::granite_hybrid) {
    config.recurrent = read_granite_mamba(fields, config.width);
    config.mixers = granite_layers(fields, config.layers);
  }
  if (family == Family::falcon_h1) {
    read_falcon_multipliers(config, fields);
    config.recurrent = read_falcon_mamba(fields, config.width);
    config.mixers.assign(static_cast<std::size_t>(config.layers), LayerKind::parallel);
  }
  if (family == Family::nemotron) {
    config.recurrent = read_nemotron_mamba(fields);
    config.mixers = nemotron_layers(fields).mixers;
    config.single_parts = true;
    config.activation = GateActivation::relu_squared;
  }
  if (is_lfm2(family)) {
    config.recurrent = read_lfm2(fields);
    config.mixers = lfm2_layers(fields, config.layers);
  }
  if (is_delta_hybrid(family)) {
    config.norm_offset = 1.0f;
    config.attention_gate = fields.flag_or("attn_output_gate", true);
    config.recurrent = read_delta_net(fields);
    config.mixers = delta_layers(fields, config.layers);
  }
  if (family == Family::gpt_oss) read_clamped_gate(config, fields);
  if (has_experts(family)) read_mixture(config, fields, family);
  read_rope(config, fields, row, origin);
  read_windows(config, fields, family);
  if (family == Family::gemma3n) {
    read_altup(config, fields);
    config.shapes.kv_layer =
        kv_layers(config, fields, fields.integer_or("num_kv_shared_layers", 15, 0, config.layers - 1));
  }
  if (family == Family::gemma4) {
    config.shapes = gemma4_shapes(config, fields, origin);
    config.rope = gemma4_rope(config, RopeKind::global, fields, origin);
    config.local_rope = gemma4_rope(config, RopeKind::local, fields, origin);
  }
  config.eos_tokens = end_tokens(fields.integers("eos_token_id", 0, config.vocabulary - 1), origin);
  config.bos_token = fields.integer_or("bos_token_id", -1, 0, config.vocabulary - 1);
  config.quantization = read_quantization(fields, origin);
  if (config.quantization.format == WeightFormat::mxfp4) {
    if (family != Family::gpt_oss)
      fields.fail("quantization_config", "with quant_method mxfp4, which is not supported for this architecture");
    if (config.ffn_width % 32 != 0 || config.width % 32 != 0)
      fields.fail("quantization_config",
                  fmt::format("with quant_method mxfp4, whose blocks of 32 do not fit hidden_size {} and "
                              "intermediate_size {}",
                              config.width, config.ffn_width));
  }
  return config;
}

}  // namespace baton
