// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/model/gguf.h"

namespace baton {
namespace {

constexpr std::int64_t kMax = INT32_MAX;  // what is a sensible number, parse_config knows

using TensorNames = std::span<const std::pair<std::string_view, std::string_view>>;

/// The names of a layer's tensors in both kinds of files.
constexpr std::pair<std::string_view, std::string_view> kLayerTensors[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.qkv_proj", "attn_qkv"},  {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},           {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};

/// Those of models with norms after attention and MLP, whose norm before the MLP has another name in checkpoints.
constexpr std::pair<std::string_view, std::string_view> kPostNormTensors[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr std::pair<std::string_view, std::string_view> kGlmNormTensors[] = {
    {"post_self_attn_layernorm", "post_attention_norm"}, {"post_mlp_layernorm", "post_ffw_norm"}};

constexpr std::pair<std::string_view, std::string_view> kGptOssTensors[] = {
    {"post_attention_layernorm", "post_attention_norm"}, {"mlp.router", "ffn_gate_inp"}};

/// Those of mixtures of experts. A file holds the matrices of all experts in one tensor.
constexpr std::pair<std::string_view, std::string_view> kMixtureTensors[] = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                                                                             {"mlp.gate", "ffn_gate_inp"},
                                                                             {"w1", "ffn_gate_exps"},
                                                                             {"gate_proj", "ffn_gate_exps"},
                                                                             {"w3", "ffn_up_exps"},
                                                                             {"up_proj", "ffn_up_exps"},
                                                                             {"w2", "ffn_down_exps"},
                                                                             {"down_proj", "ffn_down_exps"},
                                                                             {"gate_up_proj", "ffn_gate_up_exps"}};
/// And those of the expert that every token runs through.
constexpr std::pair<std::string_view, std::string_view> kSharedTensors[] = {
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};

/// Those of Gemma 4.
constexpr std::pair<std::string_view, std::string_view> kGemma4Tensors[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"}};
/// Those of Gemma 3n.
constexpr std::pair<std::string_view, std::string_view> kGemma3nTensors[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"altup.router_norm", "altup_router_norm"},
    {"altup.modality_router", "altup_router"},
    {"altup.prediction_coefs", "altup_predict_coef"},
    {"altup.correction_coefs", "altup_correct_coef"},
    {"laurel.linear_left", "laurel_l"},
    {"laurel.linear_right", "laurel_r"},
    {"laurel.post_laurel_norm", "laurel_post_norm"}};
/// The matrices of all further residual streams, in one tensor each.
constexpr std::pair<std::string_view, std::string_view> kStreamTensors[] = {
    {"model.altup_projections.", "altup_proj.weight"},
    {"model.altup_unembed_projections.", "altup_unembd_proj.weight"}};
/// Tensors outside of the layers.
constexpr std::pair<std::string_view, std::string_view> kTokenInputTensors[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};

/// Those of LFM2.
constexpr std::pair<std::string_view, std::string_view> kLfm2Tensors[] = {
    {"conv.in_proj", "shortconv.in_proj"}, {"conv.conv", "shortconv.conv"}, {"conv.out_proj", "shortconv.out_proj"}};

/// Those of Mamba2.
constexpr std::pair<std::string_view, std::string_view> kMambaTensors[] = {{"mamba.in_proj", "ssm_in"},
                                                                           {"mamba.conv1d", "ssm_conv1d"},
                                                                           {"mamba.norm", "ssm_norm"},
                                                                           {"mamba.out_proj", "ssm_out"}};
constexpr std::pair<std::string_view, std::string_view> kNemotronTensors[] = {
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"mlp.latent_in", "ffn_latent_down"},
    {"mlp.latent_out", "ffn_latent_up"},
    {"post_attention_layernorm", "attn_norm"}};

/// Those of gated delta nets.
constexpr std::pair<std::string_view, std::string_view> kDeltaTensors[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"}};

/// Tensors whose names do not end in the kind that they have in checkpoints. "rate": files hold -exp(A_log).
constexpr std::pair<std::string_view, std::string_view> kWholeNames[] = {
    {"linear_attn.rate", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"mamba.rate", "ssm_a"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.D", "ssm_d"},
    {"mlp.expert_bias", "exp_probs_b.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.expert_scale", "ffn_down_exps.scale"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"altup.correct_output_scale", "altup_correct_scale.weight"}};
constexpr std::pair<std::string_view, std::string_view> kFalconNorm = {"post_attention_layernorm.weight", "ffn_norm"};

struct Architecture {
  std::string_view name;        // of general.architecture
  std::string_view class_;      // of config.json
  TensorNames special = {};     // names that other architectures do not have, or not so
  TensorNames more = {};        // further such names
  bool interleaved = false;     // files hold queries and keys in the order of interleaved RoPE, checkpoints do not
  bool partly_rotated = false;  // heads may be rotated in part
  bool mixture = false;         // a mixture of experts is expected
  bool multipliers = false;     // Granite's
  bool whole_names = false;     // some tensors are named as in kWholeNames
  bool sigmoid_router = false;  // the weights of experts are sigmoids
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .class_ = "LlamaForCausalLM", .interleaved = true},
    {.name = "qwen2", .class_ = "Qwen2ForCausalLM"},
    {.name = "qwen3", .class_ = "Qwen3ForCausalLM"},
    {.name = "phi3", .class_ = "Phi3ForCausalLM", .partly_rotated = true},
    {.name = "gemma3", .class_ = "Gemma3ForCausalLM", .special = kPostNormTensors},
    {.name = "smollm3", .class_ = "SmolLM3ForCausalLM", .interleaved = true},
    {.name = "qwen3moe", .class_ = "Qwen3MoeForCausalLM", .mixture = true},
    {.name = "granite", .class_ = "GraniteForCausalLM", .interleaved = true, .multipliers = true},
    {.name = "olmo2", .class_ = "Olmo3ForCausalLM", .special = kPostNormTensors},
    {.name = "exaone4", .class_ = "Exaone4ForCausalLM", .special = kPostNormTensors},
    {.name = "glm4", .class_ = "Glm4ForCausalLM", .special = kGlmNormTensors, .partly_rotated = true},
    {.name = "mistral3", .class_ = "Ministral3ForCausalLM", .interleaved = true},
    {.name = "qwen2moe", .class_ = "Qwen2MoeForCausalLM", .special = kSharedTensors, .mixture = true},
    {.name = "lfm2", .class_ = "Lfm2ForCausalLM", .special = kLfm2Tensors},
    {.name = "lfm2moe",
     .class_ = "Lfm2MoeForCausalLM",
     .special = kLfm2Tensors,
     .mixture = true,
     .whole_names = true,
     .sigmoid_router = true},
    {.name = "granitehybrid",
     .class_ = "GraniteMoeHybridForCausalLM",
     .special = kMambaTensors,
     .more = kSharedTensors,
     .interleaved = true,
     .mixture = true,
     .multipliers = true,
     .whole_names = true},
    {.name = "nemotron_h", .class_ = "NemotronHForCausalLM", .special = kNemotronTensors, .whole_names = true},
    {.name = "nemotron_h_moe",
     .class_ = "NemotronHForCausalLM",
     .special = kNemotronTensors,
     .more = kSharedTensors,
     .mixture = true,
     .whole_names = true,
     .sigmoid_router = true},
    {.name = "falcon-h1", .class_ = "FalconH1ForCausalLM", .special = kMambaTensors, .whole_names = true},
    {.name = "hunyuan-dense", .class_ = "HunYuanDenseV1ForCausalLM"},
    {.name = "qwen35",
     .class_ = "Qwen3_5ForCausalLM",
     .special = kDeltaTensors,
     .partly_rotated = true,
     .whole_names = true},
    {.name = "qwen35moe",
     .class_ = "Qwen3_5MoeForCausalLM",
     .special = kDeltaTensors,
     .more = kSharedTensors,
     .partly_rotated = true,
     .mixture = true,
     .whole_names = true},
    {.name = "qwen3next",
     .class_ = "Qwen3NextForCausalLM",
     .special = kDeltaTensors,
     .more = kSharedTensors,
     .partly_rotated = true,
     .mixture = true,
     .whole_names = true},
    {.name = "gemma4", .class_ = "Gemma4ForCausalLM", .special = kGemma4Tensors, .mixture = true, .whole_names = true},
    {.name = "gemma3n", .class_ = "Gemma3nForCausalLM", .special = kGemma3nTensors, .whole_names = true},
    {.name = "gpt-oss", .class_ = "GptOssForCausalLM", .special = kGptOssTensors, .mixture = true, .whole_names = true},
};

bool is_delta_hybrid(const Architecture& architecture) {
  return architecture.name == "qwen35" || architecture.name == "qwen35moe" || architecture.name == "qwen3next";
}
bool has_token_inputs(const Architecture& architecture) {
  return architecture.name == "gemma3n" || architecture.name == "gemma4";
}
bool is_lfm2(const Architecture& architecture) { return architecture.name.starts_with("lfm2"); }
bool is_nemotron(const Architecture& architecture) { return architecture.name.starts_with("nemotron"); }

const Architecture& architecture_of(const GgufMetadata& metadata) {
  const std::string name = metadata.text("general.architecture");
  std::vector<std::string_view> names;
  for (const Architecture& one : kArchitectures) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  metadata.fail("general.architecture", fmt::format("expected one of {}", fmt::join(names, ", ")));
}

std::string_view find_name(TensorNames names, std::string_view theirs) {
  const auto found = std::ranges::find(names, theirs, &TensorNames::value_type::first);
  return found == names.end() ? std::string_view() : found->second;
}

/// Where a weight is stored.
struct StoredName {
  std::string tensor;        // empty: a name that no file can have
  std::int64_t expert = -1;  // the matrix of this expert in a tensor of all; -1: the whole tensor
  bool stream = false;       // it is a tensor of residual streams and not of experts
};

/// A stack of a further residual stream's matrices, by the name of one of them.
StoredName stream_name(std::string_view name) {
  for (const auto& [theirs, stored] : kStreamTensors) {
    if (!name.starts_with(theirs)) continue;
    std::int64_t index = -1;
    std::from_chars(name.data() + theirs.size(), name.data() + name.size(), index);
    return {std::string(stored), index, true};
  }
  return {};
}

/// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"
StoredName stored_name(std::string_view name, const Architecture& architecture) {
  if (name == "model.embed_tokens.weight") return {"token_embd.weight"};
  if (name == "model.norm.weight") return {is_lfm2(architecture) ? "token_embd_norm.weight" : "output_norm.weight"};
  if (name == "lm_head.weight") return {"output.weight"};
  if (const std::string_view input = find_name(kTokenInputTensors, name); !input.empty()) return {std::string(input)};
  constexpr std::string_view kLayers = "model.layers.", kExperts = ".experts.";
  if (!name.starts_with(kLayers)) return stream_name(name);
  const std::string_view rest = name.substr(kLayers.size());
  const std::size_t dot = rest.find('.'), kind = rest.rfind('.');
  if (architecture.name == "falcon-h1" && rest.substr(dot + 1) == kFalconNorm.first)
    return {fmt::format("blk.{}.{}", rest.substr(0, dot), kFalconNorm.second)};
  if (const std::string_view whole = find_name(kWholeNames, rest.substr(dot + 1)); !whole.empty())
    return {fmt::format("blk.{}.{}", rest.substr(0, dot), whole)};
  std::string_view middle = rest.substr(dot + 1, kind - dot - 1);
  StoredName found;
  std::string_view stored;
  if (const std::size_t experts = middle.find(kExperts); experts != middle.npos) {
    middle.remove_prefix(experts + kExperts.size());
    const std::size_t end = middle.find('.');
    found.expert = std::stoll(std::string(middle.substr(0, end)));
    stored = find_name(kMixtureTensors, middle.substr(end + 1));
  } else {
    stored = find_name(architecture.special, middle);
    if (stored.empty()) stored = find_name(architecture.more, middle);
    if (stored.empty()) stored = find_name(kLayerTensors, middle);
    if (stored.empty()) stored = find_name(kMixtureTensors, middle);
  }
  if (!stored.empty()) found.tensor = fmt::format("blk.{}.{}{}", rest.substr(0, dot), stored, rest.substr(kind));
  return found;
}

/// Layers behind the model's own, which predict further tokens; they are not run.
std::int64_t extra_layers(const GgufMetadata& metadata, const std::string& prefix) {
  const std::int64_t blocks = metadata.integer(prefix + "block_count", 1, kMax);
  return metadata.integer_or(prefix + "nextn_predict_layers", 0, 0, blocks - 1);
}

/// True for a tensor of a part that is not run: a vision or audio tower, or a layer that predicts further tokens.
bool is_left_out(std::string_view name, std::int64_t layers, std::int64_t blocks) {
  if (name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.")) return true;
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return false;
  std::int64_t layer = 0;
  const char* begin = name.data() + kLayer.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  return error == std::errc() && layer >= layers && layer < blocks;
}

std::vector<std::string> left_out(const GgufFiles& files, const std::string& prefix) {
  std::vector<std::string> parts;
  const auto any = [&](std::string_view begin) {
    return std::ranges::any_of(files.tensor_names(), [&](const std::string& name) { return name.starts_with(begin); });
  };
  if (any("v.")) parts.emplace_back("a vision tower");
  if (any("a.")) parts.emplace_back("an audio tower");
  if (const std::int64_t extra = extra_layers(files.metadata(), prefix); extra > 0)
    parts.push_back(
        fmt::format("{} layer{} that predict{} further tokens", extra, extra == 1 ? "" : "s", extra == 1 ? "s" : ""));
  return parts;
}

/// What would change the numbers and is not computed here must never be ignored: tensors that no supported model has.
void reject_unknown_tensors(const GgufFiles& files, const Architecture& architecture, bool mixture, std::int64_t layers,
                            std::int64_t blocks) {
  std::set<std::string_view> known = {"attn_rot_embd"};  // angles, which old files stored
  for (const auto& [theirs, stored] : kLayerTensors) known.insert(stored);
  for (const TensorNames names : {architecture.special, architecture.more})
    for (const auto& [theirs, stored] : names) known.insert(stored);
  if (mixture)
    for (const auto& [theirs, stored] : kMixtureTensors) known.insert(stored);
  for (const std::string& name : files.tensor_names()) {
    if (name == "token_embd.weight" || name == "output_norm.weight" || name == "output.weight" ||
        name == "rope_freqs.weight" || (is_lfm2(architecture) && name == "token_embd_norm.weight") ||
        (architecture.name == "phi3" && name.starts_with("rope_factors_")) ||
        (has_token_inputs(architecture) &&
         std::ranges::find(kTokenInputTensors, name, &TensorNames::value_type::second) !=
             std::end(kTokenInputTensors)) ||
        (architecture.name == "gemma3n" &&
         std::ranges::find(kStreamTensors, name, &TensorNames::value_type::second) != std::end(kStreamTensors)))
      continue;
    if (is_left_out(name, layers, blocks)) continue;
    const std::size_t first = name.find('.'), dot = name.find('.', first + 1), kind = name.rfind('.');
    if (architecture.name == "falcon-h1" && dot != name.npos &&
        std::string_view(name).substr(dot + 1) == kFalconNorm.second)
      continue;
    if (architecture.whole_names && name.starts_with("blk.") && dot != name.npos &&
        std::ranges::find(kWholeNames, std::string_view(name).substr(dot + 1), &TensorNames::value_type::second) !=
            std::end(kWholeNames))
      continue;
    const bool layer = name.starts_with("blk.") && dot != name.npos && kind > dot;
    if (layer && known.contains(std::string_view(name).substr(dot + 1, kind - dot - 1))) continue;
    throw ModelError(fmt::format("{}: tensor {} is not one of a model of the architecture {} as it is supported",
                                 files.metadata().origin(), describe(Json(name)), architecture.name));
  }
}

constexpr std::string_view kLogitCap = "final_logit_softcapping";

/// Granite's multipliers in both kinds of files.
struct Multiplier {
  std::string_view key;
  const char* in_config;
};
constexpr Multiplier kMultipliers[] = {{"embedding_scale", "embedding_multiplier"},
                                       {"residual_scale", "residual_multiplier"},
                                       {"attention.scale", "attention_multiplier"},
                                       {"logit_scale", "logits_scaling"}};

void reject_unsupported(const GgufMetadata& metadata, const Architecture& architecture, const std::string& prefix) {
  if (prefix != "llama." && !architecture.mixture && metadata.integer_or(prefix + "expert_count", 0, 0, kMax) != 0)
    metadata.fail(prefix + "expert_count", "but mixtures of experts are not supported for this architecture");
  for (const std::string_view key : {"expert_shared_count", "expert_group_count", "leading_dense_block_count"})
    if (!architecture.sigmoid_router && metadata.integer_or(prefix + std::string(key), 0, 0, kMax) != 0)
      metadata.fail(prefix + std::string(key), "but such mixtures of experts are not supported");
  // The softmax of the chosen experts alone (3) is that of all, normalised.
  const std::int64_t gating = architecture.sigmoid_router ? 2 : 1;
  const std::int64_t found = metadata.integer_or(prefix + "expert_gating_func", gating, 0, kMax);
  if (found != gating && (found != 3 || architecture.name != "gpt-oss"))
    metadata.fail(prefix + "expert_gating_func", gating == 1 ? "expected 1 (softmax)" : "expected 2 (sigmoid)");
  if (const double scale = metadata.number_or(prefix + "expert_weights_scale", 1.0, 0.0, 1e30);
      scale != 0.0 && scale != 1.0 && !architecture.sigmoid_router)
    metadata.fail(prefix + "expert_weights_scale", "but weights of experts are not scaled");
  for (const std::string_view key :
       {std::string_view("logit_scale"), std::string_view("residual_scale"), std::string_view("embedding_scale"),
        std::string_view("attention.scale"), std::string_view("attention.logit_softcapping"), kLogitCap,
        std::string_view("attn_logit_softcapping")}) {
    if (key == kLogitCap && (prefix == "gemma3." || prefix == "gemma3n." || prefix == "gemma4.")) continue;
    if (architecture.multipliers && std::ranges::find(kMultipliers, key, &Multiplier::key) != std::end(kMultipliers))
      continue;
    const std::string full = prefix + std::string(key);
    if (metadata.contains(full) && metadata.number(full, -1e30, 1e30) != 0.0)
      metadata.fail(full, "but that is not supported for this architecture");
  }
}

/// f32 settings are written as short as they are read: 1e-5 and not 9.99999974e-06, as config.json has them.
double rounded(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  std::from_chars(text.data(), text.data() + text.size(), value);  // follows no locale
  return value;
}

Json rope_scaling(const GgufMetadata& metadata, const std::string& prefix) {
  const std::string scaling = prefix + "rope.scaling.";
  // Before there were keys for kinds of scaling there was one for linear scaling.
  const double old = metadata.number_or(prefix + "rope.scale_linear", 1.0, 1e-6, 1e6);
  const std::string type = metadata.text_or(scaling + "type", old != 1.0 ? "linear" : "none");
  const double factor = rounded(metadata.number_or(scaling + "factor", old, 0.0, 1e6));
  if (type == "none" || (type == "linear" && (factor == 1.0 || factor == 0.0))) return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type != "yarn") metadata.fail(scaling + "type", "expected none, linear or yarn");
  Json yarn = {{"rope_type", "yarn"}, {"factor", factor}};
  if (metadata.contains(scaling + "original_context_length"))
    yarn["original_max_position_embeddings"] = metadata.integer(scaling + "original_context_length", 1, kMax);
  // The file's factor multiplies the usual one of the method.
  const double attention = metadata.number_or(scaling + "attn_factor", 1.0, 1e-6, 1e6);
  if (attention != 1.0 && factor > 1.0) yarn["attention_factor"] = attention * (0.1 * std::log(factor) + 1.0);
  for (const char* beta : {"beta_fast", "beta_slow"})
    if (metadata.contains(scaling + "yarn_" + beta)) yarn[beta] = metadata.number(scaling + "yarn_" + beta, 0.0, 1e6);
  if (const double all = metadata.number_or(scaling + "yarn_log_multiplier", 0.0, 0.0, 1e6); all != 0.0) {
    yarn["mscale"] = 1.0;
    yarn["mscale_all_dim"] = rounded(all);
  }
  const std::string temperature = prefix + "attention.temperature_scale";
  if (metadata.contains(temperature)) yarn["llama_4_scaling_beta"] = rounded(metadata.number(temperature, 0.0, 1e3));
  return yarn;
}

/// The file says how long a sliding window is, and seldom which layers have one: by a period, or one by one.
void add_windows(Json& config, const GgufMetadata& metadata, const std::string& prefix) {
  const std::string window = prefix + "attention.sliding_window", pattern = window + "_pattern";
  if (metadata.integer_or(window, 0, 0, kMax) == 0) {
    config["sliding_window"] = nullptr;
    config["sliding_window_pattern"] = 1;
    return;
  }
  config["sliding_window"] = metadata.integer(window, 1, kMax);
  const GgufValue* found = metadata.find(pattern);
  if (found == nullptr) return;
  if (found->type != GgufType::array) {
    config["sliding_window_pattern"] = metadata.integer(pattern, 1, kMax);
    return;
  }
  for (const bool sliding : metadata.flags(pattern))
    config["layer_types"].push_back(sliding ? "sliding_attention" : "full_attention");
}

void add_gemma(Json& config, const GgufMetadata& metadata, const std::string& prefix) {
  const std::int64_t layers = config["num_hidden_layers"];
  config["rope_local_base_freq"] = rounded(metadata.number_or(prefix + "rope.freq_base_swa", 10000.0, 0.0, 1e15));
  // The file does not say what queries are divided by. Of the published sizes, that of 62 layers (27B) alone has the
  // width for each head in the place of the width of a head.
  const std::int64_t width = config["hidden_size"], heads = config["num_attention_heads"];
  config["query_pre_attn_scalar"] = layers == 62 ? Json(width / heads) : config["head_dim"];
  if (metadata.contains(prefix + std::string(kLogitCap)))
    config["final_logit_softcapping"] = metadata.number(prefix + std::string(kLogitCap), 0.0, 1e30);
}

/// The deviations of sparse layers; minus infinity: the layer is not sparse.
Json sparse_deviations(const GgufMetadata& metadata, const std::string& key) {
  Json deviations = Json::array();
  for (const float one : metadata.numbers(key, false)) {
    const bool none = std::isinf(one) && one < 0.0f;
    if (!none && !std::isfinite(one)) metadata.fail(key, "expected finite numbers, or -inf for layers without");
    deviations.push_back(none ? Json() : Json(one));
  }
  return deviations;
}

void add_gemma3n(Json& config, const GgufFiles& files, const std::string& prefix) {
  const GgufMetadata& metadata = files.metadata();
  const auto number = [&](const char* key) { return metadata.integer(prefix + key, 0, kMax); };
  config["rope_local_base_freq"] = rounded(metadata.number_or(prefix + "rope.freq_base_swa", 10000.0, 0.0, 1e15));
  if (metadata.contains(prefix + std::string(kLogitCap)))
    config["final_logit_softcapping"] = metadata.number(prefix + std::string(kLogitCap), 0.0, 1e30);
  config["altup_num_inputs"] = number("altup.num_inputs");
  config["altup_active_idx"] = number("altup.active_idx");
  config["altup_correct_scale"] = files.find("blk.0.altup_correct_scale.weight") != nullptr;
  config["hidden_size_per_layer_input"] = number("embedding_length_per_layer_input");
  config["num_kv_shared_layers"] = metadata.integer_or(prefix + "attention.shared_kv_layers", 0, 0, kMax);
  config["activation_sparsity_deviations"] = sparse_deviations(metadata, prefix + "activation_sparsity_scale");
  if (const GgufTensor* low = files.find("blk.0.laurel_l.weight"); low != nullptr && low->shape.size() == 2)
    config["laurel_rank"] = low->shape[0];
  if (const GgufTensor* table = files.find("per_layer_token_embd.weight"); table != nullptr && table->shape.size() == 2)
    config["vocab_size_per_layer_input"] = table->shape[0];
  const std::string ffn = prefix + "feed_forward_length";
  if (metadata.contains(ffn) && metadata.find(ffn)->type == GgufType::array) {
    config["intermediate_size"] = metadata.integers(ffn);
  } else {
    config["intermediate_size"] = metadata.integer(ffn, 1, kMax);
  }
}

/// The pairs that turn in a proportional RoPE: the file divides the frequencies of the others by 1e30.
std::int64_t turning_pairs(const GgufFiles& files, std::int64_t pairs) {
  constexpr const char* kName = "rope_freqs.weight";
  const GgufTensor* tensor = files.find(kName);
  if (tensor == nullptr) return pairs;
  const std::string where = fmt::format("{}: tensor \"{}\"", files.metadata().origin(), kName);
  if (tensor->type != BlockType::f32 || tensor->shape != std::vector{pairs})
    throw ModelError(fmt::format("{} is {} of {}, expected F32 of {}", where, gguf_type_name(tensor->type_id),
                                 fmt::join(tensor->shape, " x "), pairs));
  std::vector<float> divisors(static_cast<std::size_t>(pairs));
  dequantize(divisors, {files.read(kName).get(), static_cast<std::size_t>(tensor->bytes)}, BlockType::f32);
  const auto still = std::ranges::find_if(divisors, [](float one) { return one != 1.0f; });
  if (const auto other = std::find_if(still, divisors.end(), [](float one) { return !(one >= 1e29f); });
      other != divisors.end())
    throw ModelError(fmt::format("{} holds {} at {}, expected ones and then numbers of at least 1e29", where, *other,
                                 other - divisors.begin()));
  return still - divisors.begin();
}

/// A number that the file may give for each layer: its value in the layers with a window and in the others. `key` is
/// there. Throws ModelError if it differs in layers of a kind.
std::array<std::int64_t, 2> by_window(const GgufMetadata& metadata, const std::string& key, const Json& layer_types) {
  if (metadata.find(key)->type != GgufType::array) {
    const std::int64_t all = metadata.integer(key, 1, kMax);
    return {all, all};
  }
  const std::vector<std::int64_t> values = metadata.integers(key);
  if (values.size() < layer_types.size())
    metadata.fail(key,
                  fmt::format("with {} numbers, expected {}, one of each layer", values.size(), layer_types.size()));
  std::array<std::int64_t, 2> found = {0, 0};
  for (std::size_t layer = 0; layer < layer_types.size(); ++layer) {
    std::int64_t& one = found[layer_types[layer] == "sliding_attention" ? 0 : 1];
    if (values[layer] < 1 || values[layer] > kMax || (one != 0 && one != values[layer]))
      metadata.fail(key, "expected the same number of at least 1 in all layers of a kind");
    one = values[layer];
  }
  for (std::int64_t& one : found)
    if (one == 0) one = std::max(found[0], found[1]);
  return found;
}

/// Values are keys in layers without a window if those have no tensor of values.
bool gemma4_keys_as_values(const GgufFiles& files, const Json& layer_types, std::int64_t own) {
  std::optional<bool> all;
  for (std::int64_t layer = 0; layer < own; ++layer) {
    if (layer_types[static_cast<std::size_t>(layer)] == "sliding_attention") continue;
    const std::string name = fmt::format("blk.{}.attn_v.weight", layer);
    const bool missing = files.find(name) == nullptr;
    if (all && *all != missing)
      throw ModelError(fmt::format("{}: tensor \"{}\" is {}, unlike in the layers of its kind before it",
                                   files.metadata().origin(), name, missing ? "missing" : "there"));
    all = missing;
  }
  return all.value_or(false);
}

void add_gemma4(Json& config, const GgufFiles& files, const std::string& prefix) {
  const GgufMetadata& metadata = files.metadata();
  if (config.contains("rope_scaling"))
    metadata.fail(prefix + "rope.scaling.type", "but that is not supported for this architecture");
  const std::int64_t layers = config["num_hidden_layers"], global = config["head_dim"];
  if (!config.contains("layer_types"))
    metadata.fail(prefix + "attention.sliding_window_pattern", "expected a list of flags, one of each layer");
  const Json& types = config["layer_types"];
  if (types.size() < static_cast<std::size_t>(layers))
    metadata.fail(prefix + "attention.sliding_window_pattern",
                  fmt::format("with {} flags, expected {}, one of each layer", types.size(), layers));
  const std::int64_t local = metadata.integer_or(prefix + "attention.key_length_swa", global, 2, kMax);
  for (const auto& [key, width] : {std::pair("attention.value_length_swa", local), {"rope.dimension_count_swa", local}})
    if (metadata.integer_or(prefix + key, width, 1, kMax) != width)
      metadata.fail(prefix + key, fmt::format("expected {}, the width of keys", width));
  std::array<std::int64_t, 2> kv_heads;
  kv_heads.fill(config["num_attention_heads"]);
  if (const std::string key = prefix + "attention.head_count_kv"; metadata.contains(key))
    kv_heads = by_window(metadata, key, types);
  const std::int64_t shared = metadata.integer_or(prefix + "attention.shared_kv_layers", 0, 0, layers - 1);
  config["head_dim"] = local;
  config["num_key_value_heads"] = kv_heads[0];
  config["num_kv_shared_layers"] = shared;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (types[static_cast<std::size_t>(layer)] != "sliding_attention")
      config["per_layer_config"][std::to_string(layer)] = {{"head_dim", global}, {"num_key_value_heads", kv_heads[1]}};
  config["attention_k_eq_v"] = gemma4_keys_as_values(files, types, layers - shared);
  const std::string ffn = prefix + "feed_forward_length";
  if (metadata.find(ffn) != nullptr && metadata.find(ffn)->type == GgufType::array) {
    const std::vector<std::int64_t> widths = metadata.integers(ffn);
    if (static_cast<std::int64_t>(widths.size()) < layers)
      metadata.fail(ffn, fmt::format("with {} numbers, expected {}, one of each layer", widths.size(), layers));
    const std::int64_t width = widths.front();
    const bool wide = widths[static_cast<std::size_t>(layers - 1)] != width;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      if (widths[static_cast<std::size_t>(layer)] != (wide && layer >= layers - shared ? 2 * width : width))
        metadata.fail(ffn, "expected the same number in all layers, or twice as much in those that share KV");
    config["intermediate_size"] = width;
    config["use_double_wide_mlp"] = wide;
  } else {
    config["intermediate_size"] = metadata.integer(ffn, 1, kMax);
  }
  config["rope_parameters"] = {
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", rounded(metadata.number_or(prefix + "rope.freq_base_swa", 10000.0, 0.0, 1e15))}}},
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", config["rope_theta"]},
        {"partial_rotary_factor", static_cast<double>(turning_pairs(files, global / 2)) /
                                      static_cast<double>(std::max<std::int64_t>(1, global / 2))}}}};
  if (metadata.contains(prefix + std::string(kLogitCap)))
    config["final_logit_softcapping"] = metadata.number(prefix + std::string(kLogitCap), 0.0, 1e30);
  config["hidden_size_per_layer_input"] = metadata.integer_or(prefix + "embedding_length_per_layer_input", 0, 0, kMax);
  if (const GgufTensor* table = files.find("per_layer_token_embd.weight"); table != nullptr && table->shape.size() == 2)
    config["vocab_size_per_layer_input"] = table->shape[0];
  if (metadata.integer_or(prefix + "expert_count", 0, 0, kMax) == 0) return;
  config["enable_moe_block"] = true;
  config["num_experts"] = metadata.integer(prefix + "expert_count", 1, kMax);
  config["top_k_experts"] = metadata.integer(prefix + "expert_used_count", 1, kMax);
  config["moe_intermediate_size"] = metadata.integer(prefix + "expert_feed_forward_length", 1, kMax);
}

/// The numbers of a tensor [count] of f32, each from 1e-6 to 1e6: what frequencies are divided by.
std::vector<float> read_divisors(const GgufFiles& files, const std::string& name, std::size_t count) {
  const GgufTensor* tensor = files.find(name);
  const std::string where = fmt::format("{}: tensor \"{}\"", files.metadata().origin(), name);
  if (tensor == nullptr) throw ModelError(where + " is missing");
  if (tensor->type != BlockType::f32 || tensor->shape != std::vector{static_cast<std::int64_t>(count)})
    throw ModelError(fmt::format("{} is {} of {}, expected F32 of {}", where, gguf_type_name(tensor->type_id),
                                 fmt::join(tensor->shape, " x "), count));
  std::vector<float> divisors(count);
  dequantize(divisors, {files.read(name).get(), static_cast<std::size_t>(tensor->bytes)}, BlockType::f32);
  for (const float divisor : divisors)
    if (!(divisor >= 1e-6f && divisor <= 1e6f))
      throw ModelError(fmt::format("{} holds {}, expected 1e-6 to 1e6", where, divisor));
  return divisors;
}

/// Phi's two lists of divisors.
void add_longrope(Json& config, const GgufFiles& files, const std::string& prefix, std::int64_t rotated) {
  if (files.find("rope_factors_long.weight") == nullptr && files.find("rope_factors_short.weight") == nullptr) return;
  const GgufMetadata& metadata = files.metadata();
  const auto pairs = static_cast<std::size_t>(rotated / 2);
  Json& scaling = config["rope_scaling"] = {{"rope_type", "longrope"}};
  scaling["long_factor"] = read_divisors(files, "rope_factors_long.weight", pairs);
  scaling["short_factor"] = read_divisors(files, "rope_factors_short.weight", pairs);
  const std::string original = prefix + "rope.scaling.original_context_length";
  if (metadata.contains(original)) scaling["original_max_position_embeddings"] = metadata.integer(original, 1, kMax);
  const std::string factor = prefix + "rope.scaling.attn_factor";
  if (metadata.contains(factor)) scaling["attention_factor"] = rounded(metadata.number(factor, 1e-6, 1e6));
}

bool has_bias(const GgufFiles& files, const char* tensor) {
  return files.find(fmt::format("blk.0.{}.bias", tensor)) != nullptr;
}

std::int64_t vocabulary_of(const GgufFiles& files) {
  const GgufTensor* embedding = files.find("token_embd.weight");
  if (embedding == nullptr)
    throw ModelError(fmt::format("{}: tensor \"token_embd.weight\" is missing", files.metadata().origin()));
  return embedding->shape.size() == 2 ? embedding->shape[0] : 0;
}

void add_mixture(Json& config, const GgufMetadata& metadata, const std::string& prefix, bool mixtral) {
  const bool shared = prefix == "qwen2moe." || prefix == "qwen35moe." || prefix == "qwen3next.";
  const bool gpt_oss = prefix == "gpt-oss.";
  config[mixtral || gpt_oss ? "num_local_experts" : "num_experts"] = metadata.integer(prefix + "expert_count", 1, kMax);
  config["num_experts_per_tok"] = metadata.integer(prefix + "expert_used_count", 1, kMax);
  if (gpt_oss) {
    const std::string width = prefix + "expert_feed_forward_length";
    config["intermediate_size"] = metadata.integer_or(width, config["intermediate_size"], 1, kMax);
    return;
  }
  config["norm_topk_prob"] = prefix != "qwen2moe.";  // as llama.cpp computes all files of these architectures
  if (!mixtral) config["moe_intermediate_size"] = metadata.integer(prefix + "expert_feed_forward_length", 1, kMax);
  if (shared)
    config["shared_expert_intermediate_size"] =
        prefix == "qwen2moe."
            ? metadata.integer_or(prefix + "expert_shared_feed_forward_length", config["intermediate_size"], 1, kMax)
            : metadata.integer(prefix + "expert_shared_feed_forward_length", 1, kMax);
}

/// KV heads, which files of models with other layers than attention name layer by layer: 0 for those. Adds the layers'
/// kinds to the configuration then; `other`: the name of those.
std::int64_t kv_heads_by_layer(Json& config, const GgufMetadata& metadata, const std::string& key, std::int64_t layers,
                               const char* other) {
  const std::vector<std::int64_t> heads = metadata.integers(key);
  if (static_cast<std::int64_t>(heads.size()) < layers)
    metadata.fail(key, fmt::format("with {} numbers, expected {}, one of each layer", heads.size(), layers));
  const std::int64_t most = std::clamp<std::int64_t>(*std::ranges::max_element(heads), 0, kMax);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t here = heads[static_cast<std::size_t>(layer)];
    if (here != 0 && here != most)
      metadata.fail(key, fmt::format("expected 0 or {} in each layer, found {}", most, here));
    config["layer_types"].push_back(here != 0 ? "full_attention" : other);
  }
  return std::max<std::int64_t>(most, 1);
}

/// KV heads, which some files name layer by layer though all have the same.
std::int64_t kv_heads_of(const GgufMetadata& metadata, const std::string& key, std::int64_t heads) {
  const GgufValue* found = metadata.find(key);
  if (found == nullptr || found->type != GgufType::array) return metadata.integer_or(key, heads, 1, kMax);
  const std::vector<std::int64_t> all = metadata.integers(key);
  if (all.empty() || all.front() < 1 || std::ranges::any_of(all, [&](std::int64_t one) { return one != all.front(); }))
    metadata.fail(key, "expected the same number of at least 1 in all layers");
  return all.front();
}

void add_lfm2(Json& config, const GgufMetadata& metadata, const std::string& prefix) {
  config["conv_L_cache"] = metadata.integer(prefix + "shortconv.l_cache", 1, kMax);
  config["block_auto_adjust_ff_dim"] = false;
  config["norm_eps"] = config["rms_norm_eps"];
  config["num_dense_layers"] = metadata.integer_or(prefix + "leading_dense_block_count", 0, 0, kMax);
}

/// The shapes of Mamba2 in both families' terms.
void add_granite_mamba(Json& config, const GgufMetadata& metadata, const std::string& prefix) {
  const auto number = [&](const char* key) { return metadata.integer(prefix + "ssm." + key, 1, kMax); };
  const std::int64_t inner = number("inner_size"), width = config["hidden_size"], heads = number("time_step_rank");
  if (inner % width != 0 || inner % heads != 0)
    metadata.fail(prefix + "ssm.inner_size",
                  fmt::format("expected a multiple of the width, {}, and of ssm.time_step_rank, {}", width, heads));
  config["mamba_expand"] = inner / width;
  config["mamba_n_heads"] = heads;
  config["mamba_d_head"] = inner / heads;
  config["mamba_n_groups"] = number("group_count");
  config["mamba_d_state"] = number("state_size");
  config["mamba_d_conv"] = number("conv_kernel");
  config["position_embedding_type"] = metadata.flag_or(prefix + "rope.scaling.finetuned", true) ? "rope" : "nope";
  const std::int64_t experts = metadata.integer_or(prefix + "expert_count", 0, 0, kMax);
  config["num_local_experts"] = experts;
  config["num_experts_per_tok"] = metadata.integer_or(prefix + "expert_used_count", 0, 0, kMax);
  config["shared_intermediate_size"] =
      metadata.integer_or(prefix + "expert_shared_feed_forward_length", config["intermediate_size"], 1, kMax);
}

/// All multipliers are in the weights of such files.
void add_falcon_mamba(Json& config, const GgufFiles& files, const std::string& prefix) {
  const GgufMetadata& metadata = files.metadata();
  const auto number = [&](const char* key) { return metadata.integer(prefix + "ssm." + key, 1, kMax); };
  config["mamba_d_ssm"] = number("inner_size");
  config["mamba_n_heads"] = number("time_step_rank");
  config["mamba_n_groups"] = number("group_count");
  config["mamba_d_state"] = number("state_size");
  config["mamba_d_conv"] = number("conv_kernel");
  config["mamba_rms_norm"] = files.find("blk.0.ssm_norm.weight") != nullptr;
  config["mamba_norm_before_gate"] = false;  // as llama.cpp computes all such files
}

void add_nemotron(Json& config, const GgufFiles& files, const std::string& prefix) {
  const GgufMetadata& metadata = files.metadata();
  const auto number = [&](const char* key) { return metadata.integer(prefix + "ssm." + key, 1, kMax); };
  const std::int64_t inner = number("inner_size"), heads = number("time_step_rank");
  if (inner % heads != 0)
    metadata.fail(prefix + "ssm.inner_size", fmt::format("expected a multiple of ssm.time_step_rank, {}", heads));
  config["mamba_num_heads"] = heads;
  config["mamba_head_dim"] = inner / heads;
  config["n_groups"] = number("group_count");
  config["ssm_state_size"] = number("state_size");
  config["conv_kernel"] = number("conv_kernel");
  config["layer_norm_epsilon"] = config["rms_norm_eps"];
  const std::string key = prefix + "feed_forward_length";
  const std::vector<std::int64_t> widths = metadata.integers(key);
  const std::size_t layers = config["layer_types"].size();
  if (widths.size() < layers)
    metadata.fail(key, fmt::format("with {} numbers, expected {}, one of each layer", widths.size(), layers));
  std::int64_t width = 1;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::string type = config["layer_types"][layer] == "full_attention" ? "attention" : "mamba";
    if (widths[layer] > 0) {
      type = files.find(fmt::format("blk.{}.ffn_gate_inp.weight", layer)) != nullptr ? "moe" : "mlp";
      if (type == "mlp") width = widths[layer];
    }
    config["layers_block_type"].push_back(type);
  }
  config.erase("layer_types");
  config["intermediate_size"] = width;
  if (!metadata.contains(prefix + "expert_count")) return;
  config["n_routed_experts"] = metadata.integer(prefix + "expert_count", 1, kMax);
  config["num_experts_per_tok"] = metadata.integer(prefix + "expert_used_count", 1, kMax);
  config["moe_intermediate_size"] = metadata.integer(prefix + "expert_feed_forward_length", 1, kMax);
  config["n_group"] = metadata.integer_or(prefix + "expert_group_count", 1, 0, kMax);
  config["norm_topk_prob"] = metadata.flag_or(prefix + "expert_weights_norm", false);
  config["routed_scaling_factor"] = rounded(metadata.number_or(prefix + "expert_weights_scale", 1.0, 0.0, 1e6));
  if (const std::int64_t latent = metadata.integer_or(prefix + "moe_latent_size", 0, 0, kMax); latent > 0)
    config["moe_latent_size"] = latent;
  if (const std::int64_t shared = metadata.integer_or(prefix + "expert_shared_feed_forward_length", 0, 0, kMax);
      shared > 0)
    config["moe_shared_expert_intermediate_size"] = shared;
}

void add_delta_net(Json& config, const GgufMetadata& metadata, const std::string& prefix) {
  const auto number = [&](const char* key) { return metadata.integer(prefix + "ssm." + key, 1, kMax); };
  const std::int64_t heads = number("time_step_rank"), inner = number("inner_size");
  if (inner % heads != 0)
    metadata.fail(prefix + "ssm.inner_size", fmt::format("expected a multiple of ssm.time_step_rank, {}", heads));
  config["linear_conv_kernel_dim"] = number("conv_kernel");
  config["linear_num_key_heads"] = number("group_count");
  config["linear_num_value_heads"] = heads;
  config["linear_key_head_dim"] = number("state_size");
  config["linear_value_head_dim"] = inner / heads;
  config["linear_heads_tiled"] = prefix != "qwen3next.";
  const std::string interval = prefix + "full_attention_interval", recurrent = prefix + "attention.recurrent_layers";
  if (metadata.contains(interval)) config["full_attention_interval"] = metadata.integer(interval, 1, kMax);
  if (!metadata.contains(recurrent)) return;
  const std::vector<bool> flags = metadata.flags(recurrent);
  const auto layers = config["num_hidden_layers"].get<std::size_t>();
  if (flags.size() < layers)
    metadata.fail(recurrent, fmt::format("with {} values, expected {}, one of each layer", flags.size(), layers));
  for (std::size_t layer = 0; layer < layers; ++layer)
    config["layer_types"].push_back(flags[layer] ? "linear_attention" : "full_attention");
}

/// What only some architectures have.
void add_settings_of(const Architecture& architecture, Json& config, const GgufFiles& files,
                     const std::string& prefix) {
  const GgufMetadata& metadata = files.metadata();
  const std::string_view name = architecture.name;
  if (name == "llama" || name == "smollm3" || name == "granite") {
    config["attention_bias"] = has_bias(files, "attn_q");
    config["mlp_bias"] = has_bias(files, "ffn_down");
  }
  if (name == "glm4") config["attention_bias"] = has_bias(files, "attn_q");
  if (name == "qwen2moe") config["qkv_bias"] = has_bias(files, "attn_q");
  if (name == "phi3") {  // files of Phi-4 say 0: none
    if (const std::int64_t window = metadata.integer_or(prefix + "attention.sliding_window", 0, 0, kMax); window > 0)
      config["sliding_window"] = window;
  }
  if (name == "gemma3" || name == "olmo2" || name == "exaone4" || name == "gpt-oss" || has_token_inputs(architecture))
    add_windows(config, metadata, prefix);
  if (name == "gemma3n") add_gemma3n(config, files, prefix);
  if (name == "gemma4") add_gemma4(config, files, prefix);
  if (name == "gpt-oss") {
    config["attention_bias"] = has_bias(files, "attn_q");
    if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;  // no file says it
  }
  if (name == "gemma3") add_gemma(config, metadata, prefix);
  if (is_lfm2(architecture)) add_lfm2(config, metadata, prefix);
  if (is_delta_hybrid(architecture)) add_delta_net(config, metadata, prefix);
  if (name == "granitehybrid") add_granite_mamba(config, metadata, prefix);
  if (is_nemotron(architecture)) add_nemotron(config, files, prefix);
  if (name == "falcon-h1") add_falcon_mamba(config, files, prefix);
  if (!architecture.multipliers) return;
  for (const Multiplier& one : kMultipliers) {
    const std::string key = prefix + std::string(one.key);
    if (metadata.contains(key)) config[one.in_config] = rounded(metadata.number(key, 1e-6, 1e6));
  }
}

Json config_json(const GgufFiles& files) {
  const GgufMetadata& metadata = files.metadata();
  const Architecture& architecture = architecture_of(metadata);
  const std::string prefix = std::string(architecture.name) + ".";
  reject_unsupported(metadata, architecture, prefix);
  const bool mixtral = architecture.name == "llama" && metadata.integer_or(prefix + "expert_count", 0, 0, kMax) != 0;
  const bool gemma4 = architecture.name == "gemma4";  // some sizes have experts
  const bool mixture =
      mixtral || (architecture.mixture && (!gemma4 || metadata.integer_or(prefix + "expert_count", 0, 0, kMax) != 0));
  const std::int64_t blocks = metadata.integer(prefix + "block_count", 1, kMax);
  const std::int64_t layers = blocks - extra_layers(metadata, prefix);
  reject_unknown_tensors(files, architecture, mixture, layers, blocks);

  const std::int64_t width = metadata.integer(prefix + "embedding_length", 1, kMax);
  const std::int64_t heads = metadata.integer(prefix + "attention.head_count", 1, kMax);
  Json config;
  const std::string kv_key = prefix + "attention.head_count_kv";
  const bool by_layer = is_lfm2(architecture) || is_nemotron(architecture) || architecture.name == "granitehybrid";
  const char* other = is_lfm2(architecture) ? "conv" : "mamba";
  const std::int64_t kv_heads = by_layer ? kv_heads_by_layer(config, metadata, kv_key, layers, other)
                                : gemma4 ? heads
                                         : kv_heads_of(metadata, kv_key, heads);
  const std::int64_t head_dim = metadata.integer_or(prefix + "attention.key_length", width / heads, 1, kMax);
  if (metadata.integer_or(prefix + "attention.value_length", head_dim, 1, kMax) != head_dim)
    metadata.fail(prefix + "attention.value_length", fmt::format("expected {}, the width of keys", head_dim));
  const std::int64_t rotated = is_nemotron(architecture)  // without RoPE
                                   ? head_dim
                                   : metadata.integer_or(prefix + "rope.dimension_count", head_dim, 1, kMax);
  if (rotated > head_dim || (rotated != head_dim && !architecture.partly_rotated))
    metadata.fail(prefix + "rope.dimension_count",
                  fmt::format("expected {}: only heads that are rotated as a whole are supported", head_dim));

  std::string epsilon = prefix + "attention.layer_norm_rms_epsilon";
  if (is_nemotron(architecture) && !metadata.contains(epsilon)) epsilon = prefix + "attention.layer_norm_epsilon";
  config.update({{"architectures", {std::string(mixtral ? "MixtralForCausalLM" : architecture.class_)}},
                 {"num_hidden_layers", layers},
                 {"hidden_size", width},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", kv_heads},
                 {"head_dim", head_dim},
                 {"vocab_size", vocabulary_of(files)},
                 {"max_position_embeddings", metadata.integer(prefix + "context_length", 1, kMax)},
                 {"rms_norm_eps", rounded(metadata.number(epsilon, 0.0, 1.0))},
                 {"rope_theta", rounded(metadata.number_or(prefix + "rope.freq_base", 10000.0, 0.0, 1e15))},
                 {"tie_word_embeddings", files.find("output.weight") == nullptr},
                 {"eos_token_id", gguf_eos_tokens(metadata)}});
  // Which have no MLP, or not in all layers, or not one of the same width.
  if (architecture.name != "qwen35moe" && !is_nemotron(architecture) && !has_token_inputs(architecture))
    config["intermediate_size"] = metadata.integer(prefix + "feed_forward_length", 1, kMax);
  if (const Json scaling = rope_scaling(metadata, prefix); !scaling.is_null()) config["rope_scaling"] = scaling;
  add_settings_of(architecture, config, files, prefix);
  if (mixture && !is_nemotron(architecture) && architecture.name != "granitehybrid" && !gemma4)
    add_mixture(config, metadata, prefix, mixtral);
  if (architecture.partly_rotated)
    config["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(head_dim);
  if (architecture.name == "phi3") add_longrope(config, files, prefix, rotated);
  if (metadata.contains("tokenizer.ggml.bos_token_id"))
    config["bos_token_id"] = metadata.integer("tokenizer.ggml.bos_token_id", 0, kMax);
  return config;
}

/// Llama 3 files store what each frequency is divided by.
std::vector<float> frequency_divisors(const GgufFiles& files, const ModelConfig& config) {
  if (files.find("rope_freqs.weight") == nullptr || config.rope.turning > 0) return config.rope.divisors;
  return read_divisors(files, "rope_freqs.weight", static_cast<std::size_t>(config.rotated(RopeKind::global)) / 2);
}

}  // namespace

std::vector<std::int32_t> gguf_eos_tokens(const GgufMetadata& metadata) {
  // Gemma 4 writes it behind a call. Files have it as a token that is shown.
  constexpr std::string_view kToolResponse = "<|tool_response>";
  constexpr std::string_view kEnds[] = {"<|im_end|>",    "<|eot_id|>", "<|eom_id|>",    "<|end|>",
                                        "<end_of_turn>", "<|eot|>",    "<|endoftext|>", "<|end_of_text|>",
                                        "</s>",          "<turn|>",    kToolResponse};
  // gpt-oss ends each message of an answer with <|end|>, and the answer itself with one of these.
  constexpr std::string_view kHarmonyEnds[] = {"<|return|>", "<|call|>"};
  constexpr std::int64_t kControl = 3;  // of tokenizer.ggml.token_type
  std::vector<std::int32_t> ids;
  const auto add = [&](std::int64_t id) { ids.push_back(static_cast<std::int32_t>(id)); };
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string full = fmt::format("tokenizer.ggml.{}", key);
    if (metadata.contains(full)) add(metadata.integer(full, 0, kMax));
  }
  if (!metadata.contains("tokenizer.ggml.tokens") || !metadata.contains("tokenizer.ggml.token_type"))
    return end_tokens(ids, metadata.origin());
  const std::vector<std::string_view> tokens = metadata.texts("tokenizer.ggml.tokens");
  const std::vector<std::int64_t> types = metadata.integers("tokenizer.ggml.token_type");
  const auto is_in = [](const auto& list, std::string_view token) {
    return std::ranges::find(list, token) != std::end(list);
  };
  const bool harmony = std::ranges::all_of(kHarmonyEnds, [&](std::string_view end) { return is_in(tokens, end); });
  const auto ends = [&](std::string_view token) {
    if (harmony && token == "<|end|>") return false;
    return is_in(kEnds, token) || (harmony && is_in(kHarmonyEnds, token));
  };
  for (std::size_t id = 0; id < std::min(tokens.size(), types.size()); ++id)
    if ((types[id] == kControl || tokens[id] == kToolResponse) && ends(tokens[id])) add(static_cast<std::int64_t>(id));
  return end_tokens(ids, metadata.origin());
}

std::vector<std::string_view> gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& one : kArchitectures) names.push_back(one.name);
  return names;
}

ModelConfig gguf_config(const GgufFiles& files, const Json& changes) {
  Json json = config_json(files);
  if (!changes.is_null()) json.merge_patch(changes);
  ModelConfig config = parse_config(json.dump(), files.metadata().origin() + ": metadata as config.json");
  if (config.quantization.format != WeightFormat::plain)
    files.metadata().fail("quantization_config",
                          "which GGUF files do not have: their tensors say how they are quantised");
  config.rope.divisors = frequency_divisors(files, config);
  config.norm_offset = 0.0f;  // added when the file was made
  config.left_out = left_out(files, std::string(architecture_of(files.metadata()).name) + ".");
  return config;
}

GgufWeights::GgufWeights(const GgufFiles& files, const ModelConfig& config)
    : files_(files),
      head_dim_(config.head_dim),
      experts_(config.mixture.experts),
      further_streams_(config.altup.streams - 1) {}

bool GgufWeights::contains(const std::string& name) const {
  return files_.find(stored_name(name, architecture_of(files_.metadata())).tensor) != nullptr;
}

namespace {

std::int64_t product_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

StoredWeight GgufWeights::weight(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const StoredName at = stored_name(name, architecture_of(files_.metadata()));
  const std::string &stored = at.tensor, &origin = files_.metadata().origin();
  const GgufTensor* tensor = files_.find(stored);
  if (tensor == nullptr) throw ModelError(fmt::format("{}: tensor \"{}\" ({}) is missing", origin, stored, name));
  const std::string where = fmt::format("{}: tensor \"{}\"", origin, stored);
  if (!tensor->type) {
    std::vector<std::string_view> names;
    for (std::int32_t type = 0; type < kBlockTypes; ++type)
      names.push_back(format_of(static_cast<BlockType>(type)).name);
    throw ModelError(fmt::format("{} is of type {}, expected one of {}", where, gguf_type_name(tensor->type_id),
                                 fmt::join(names, ", ")));
  }
  std::vector<std::int64_t> shape = rows == 1 ? std::vector<std::int64_t>{cols} : std::vector<std::int64_t>{rows, cols};
  if (at.expert >= 0) shape.insert(shape.begin(), at.stream ? further_streams_ : experts_);
  if (rows == 1 && at.expert < 0 && product_of(tensor->shape) == cols) shape = tensor->shape;  // a vector of any form
  if (tensor->shape != shape)
    throw ModelError(
        fmt::format("{} has shape [{}], expected [{}]", where, fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
  const bool rotated = stored.find(".attn_q.") != stored.npos || stored.find(".attn_k.") != stored.npos;
  const std::int64_t stride = row_bytes(*tensor->type, cols);
  const auto first = static_cast<std::uint64_t>(std::max<std::int64_t>(at.expert, 0) * rows * stride);
  return {nullptr,
          *tensor->type,
          rows,
          cols,
          rotated && architecture_of(files_.metadata()).interleaved ? head_dim_ : 0,
          0,
          nullptr,
          [=, this](std::span<std::byte> out, std::int64_t row) {
            files_.read(stored, first + static_cast<std::uint64_t>(row * stride), out);
          }};
}

namespace {

namespace fs = std::filesystem;

/// The text of a file beside the model; empty: there is none.
std::optional<std::string> text_of(const fs::path& file) {
  if (std::error_code ignored; !fs::exists(file, ignored)) return std::nullopt;
  return InputFile(file).text(kMaxTextFile);
}

class GgufModel final : public ModelFiles {
 public:
  explicit GgufModel(const fs::path& path)
      : files_(path),
        changes_file_(file_beside(path, "config.json")),
        tokenizer_file_(file_beside(path, "tokenizer.json")),
        changes_(text_of(changes_file_)),
        tokenizer_(text_of(tokenizer_file_)) {}

  ModelConfig config() const override { return gguf_config(files_, *changes()); }

  GenerationDefaults generation() const override { return {}; }  // the format has none

  ModelText text() const override {
    const GgufMetadata& metadata = files_.metadata();
    ModelText text;
    if (tokenizer_) {
      text.tokenizer = Tokenizer::parse(*tokenizer_, tokenizer_file());
    } else {
      const std::string rule = changed_rule();
      std::string doubt;
      text.tokenizer = gguf_tokenizer(metadata, rule, &doubt);
      if (!doubt.empty())
        text.warnings.push_back(fmt::format(
            "{}: {}; the rule may be changed in {} ({{\"{}\": \"NAME\"}}), or the model's tokenizer.json be put beside "
            "the file as {}",
            metadata.origin(), doubt, changes_file_.filename().string(), kRuleKey,
            tokenizer_file_.filename().string()));
    }
    text.chat_options.merges_roles = true;
    text.chat_options.bos_token = gguf_special_text(metadata, "bos");
    text.chat_options.eos_token = gguf_special_text(metadata, "eos");
    if (const std::string source = metadata.text_or("tokenizer.chat_template", ""); !source.empty())
      text.chat_template = ChatTemplate::parse(source, metadata.origin() + ": tokenizer.chat_template");
    return text;
  }

  std::string tokenizer_file() const override {
    return tokenizer_ ? tokenizer_file_.string() : files_.metadata().origin();
  }

  const WeightSource& weights() override {
    if (!weights_) weights_ = std::make_unique<GgufWeights>(files_, config());
    return *weights_;
  }

  std::string fingerprint(const std::stop_token& stop) override {
    return files_.fingerprint(changes_.value_or(""), stop);
  }
  std::size_t bytes() override { return files_.total_bytes(); }

 private:
  static constexpr const char* kRuleKey = "tokenizer.ggml.pre";

  JsonDocument changes() const {
    JsonDocument changes;
    if (changes_) {
      changes = parse_json(*changes_, changes_file_.string());
      if (!changes->is_object()) throw ModelError(fmt::format("{}: expected an object", changes_file_.string()));
    }
    return changes;
  }
  /// The rule for words that takes the place of the file's; empty: none does.
  std::string changed_rule() const {
    const JsonDocument all = changes();
    const std::string origin = changes_file_.string();
    return all->is_object() ? JsonFields(*all, origin).text_or(kRuleKey, "") : "";
  }

  GgufFiles files_;
  fs::path changes_file_, tokenizer_file_;
  std::optional<std::string> changes_, tokenizer_;
  std::unique_ptr<GgufWeights> weights_;
};

}  // namespace

std::unique_ptr<ModelFiles> open_gguf_model(const fs::path& path) { return std::make_unique<GgufModel>(path); }

}  // namespace baton
