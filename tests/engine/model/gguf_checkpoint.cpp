// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/gguf_checkpoint.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "engine/model/rope.h"
#include "engine/model/safetensors.h"
#include "tests/support/tiny_model.h"

namespace baton::test {
namespace {

using Json = nlohmann::json;

const std::pair<const char*, const char*> kNames[] = {{"input_layernorm", "attn_norm"},
                                                      {"self_attn.q_proj", "attn_q"},
                                                      {"self_attn.k_proj", "attn_k"},
                                                      {"self_attn.v_proj", "attn_v"},
                                                      {"self_attn.qkv_proj", "attn_qkv"},
                                                      {"self_attn.o_proj", "attn_output"},
                                                      {"self_attn.q_norm", "attn_q_norm"},
                                                      {"self_attn.k_norm", "attn_k_norm"},
                                                      {"post_self_attn_layernorm", "post_attention_norm"},
                                                      {"post_mlp_layernorm", "post_ffw_norm"},
                                                      {"post_attention_layernorm", "ffn_norm"},
                                                      {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                                      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                                      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                                      {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                                      {"block_sparse_moe.gate", "ffn_gate_inp"},
                                                      {"mlp.router", "ffn_gate_inp"},
                                                      {"self_attn.sinks", "attn_sinks.weight"},
                                                      {"mlp.gate.", "ffn_gate_inp."},
                                                      {"mlp.gate_up_proj", "ffn_up"},
                                                      {"mlp.gate_proj", "ffn_gate"},
                                                      {"mlp.up_proj", "ffn_up"},
                                                      {"mlp.down_proj", "ffn_down"},
                                                      {"model.embed_tokens", "token_embd"},
                                                      {"model.norm", "output_norm"},
                                                      {"lm_head", "output"},
                                                      {"model.layers.", "blk."}};

const std::pair<const char*, const char*> kPostNormNames[] = {{"post_attention_layernorm", "post_attention_norm"},
                                                              {"pre_feedforward_layernorm", "ffn_norm"},
                                                              {"post_feedforward_layernorm", "post_ffw_norm"}};

const std::pair<const char*, const char*> kGemma4Names[] = {{"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                                                            {"post_per_layer_input_norm", "post_norm"},
                                                            {"per_layer_input_gate", "inp_gate"},
                                                            {"per_layer_model_projection", "per_layer_model_proj"},
                                                            {"per_layer_projection_norm", "per_layer_proj_norm"},
                                                            {"per_layer_projection", "proj"},
                                                            {"model.embed_tokens_per_layer", "per_layer_token_embd"},
                                                            {"model.per_layer", "per_layer"},
                                                            {"layer_scalar", "layer_output_scale.weight"},
                                                            {"router.per_expert_scale", "ffn_down_exps.scale"},
                                                            {"router.scale", "ffn_gate_inp.scale"},
                                                            {"router.proj", "ffn_gate_inp"},
                                                            {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
                                                            {"experts.down_proj", "ffn_down_exps.weight"}};

std::string gemma4_name(std::string name) {
  for (const auto& [theirs, stored] : kGemma4Names)
    if (const std::size_t at = name.find(theirs); at != name.npos) name.replace(at, std::string(theirs).size(), stored);
  return name;
}

std::string stored_name(std::string name, bool post_norms) {
  for (const auto& [theirs, stored] : kPostNormNames)
    if (const std::size_t at = name.find(theirs); post_norms && at != name.npos)
      name.replace(at, std::string(theirs).size(), stored);
  for (const auto& [theirs, stored] : kNames)
    if (const std::size_t at = name.find(theirs); at != name.npos) name.replace(at, std::string(theirs).size(), stored);
  return name;
}

/// The tensor that holds a matrix of all experts; empty: the name is not that of an expert's matrix.
std::string expert_tensor(const std::string& name) {
  if (name.find(".experts.") == name.npos) return "";
  const std::string layer = name.substr(13, name.find('.', 13) - 13);  // behind "model.layers."
  for (const auto& [theirs, stored] :
       {std::pair("w1", "ffn_gate_exps"), std::pair("gate_proj", "ffn_gate_exps"), std::pair("w3", "ffn_up_exps"),
        std::pair("up_proj", "ffn_up_exps"), std::pair("w2", "ffn_down_exps"), std::pair("down_proj", "ffn_down_exps")})
    if (name.ends_with(std::string(".") + theirs + ".weight")) return "blk." + layer + "." + stored + ".weight";
  throw std::runtime_error("unknown name " + name);
}

std::string encoded(const std::vector<float>& values, BlockType type) {
  std::string bytes;
  for (const float value : values) bytes += type == BlockType::f32 ? raw(value) : raw(f32_to_bf16(value));
  return bytes;
}

/// Rows of each head from [first half, second half] to pairs, as llama files hold queries and keys.
std::vector<float> interleaved(const std::vector<float>& values, std::size_t cols, std::size_t head_dim) {
  std::vector<float> out(values.size());
  const std::size_t half = head_dim / 2;
  for (std::size_t row = 0; row * cols < values.size(); ++row) {
    const std::size_t head = row / head_dim * head_dim, at = row % head_dim;
    const std::size_t to = head + (at < half ? 2 * at : 2 * (at - half) + 1);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                out.begin() + static_cast<std::ptrdiff_t>(to * cols));
  }
  return out;
}

std::string add_settings(GgufWriter& writer, const ModelConfig& config) {
  const std::map<std::string, std::string> names = {
      {"Qwen2ForCausalLM", "qwen2"},     {"Qwen3ForCausalLM", "qwen3"},         {"Phi3ForCausalLM", "phi3"},
      {"Gemma3ForCausalLM", "gemma3"},   {"SmolLM3ForCausalLM", "smollm3"},     {"Qwen3MoeForCausalLM", "qwen3moe"},
      {"GraniteForCausalLM", "granite"}, {"Olmo3ForCausalLM", "olmo2"},         {"Exaone4ForCausalLM", "exaone4"},
      {"Glm4ForCausalLM", "glm4"},       {"Ministral3ForCausalLM", "mistral3"}, {"Qwen2MoeForCausalLM", "qwen2moe"},
      {"GptOssForCausalLM", "gpt-oss"},  {"Gemma4ForCausalLM", "gemma4"}};
  const auto found = names.find(config.architecture);
  const std::string name = found != names.end() ? found->second : "llama";
  const auto number = [&](const std::string& key, std::int32_t value) {
    writer.number(name + "." + key, static_cast<std::uint32_t>(value));
  };
  writer.text("general.architecture", name);
  number("block_count", config.layers);
  number("context_length", config.context);
  number("embedding_length", config.width);
  const LayerShapes& shapes = config.shapes;
  if (name == "gemma4") {
    writer.integers(name + ".feed_forward_length", shapes.ffn_width);
    writer.integers(name + ".attention.head_count_kv", shapes.kv_heads);
    number("attention.key_length_swa", config.head_dim);
    number("attention.value_length_swa", config.head_dim);
    number("rope.dimension_count_swa", config.head_dim);
    number("attention.shared_kv_layers", config.layers - config.first_kv_reader());
    number("embedding_length_per_layer_input", config.token_input.width);
    writer.real(name + ".rope.freq_base_swa", static_cast<float>(config.local_rope.theta));
    writer.real(name + ".final_logit_softcapping", config.logit_cap);
    std::vector<float> divisors(static_cast<std::size_t>(config.rope.width / 2), 1e30f);
    std::fill_n(divisors.begin(), config.rope.turning, 1.0f);
    writer.tensor("rope_freqs.weight", {static_cast<std::int64_t>(divisors.size())}, BlockType::f32,
                  encoded(divisors, BlockType::f32));
  } else {
    number("feed_forward_length", config.ffn_width);
    number("attention.head_count_kv", config.kv_heads);
  }
  number("attention.head_count", config.heads);
  const std::int32_t head_dim = name == "gemma4" ? config.rope.width : config.head_dim;
  number("attention.key_length", head_dim);
  number("attention.value_length", head_dim);
  number("rope.dimension_count", config.rotated(RopeKind::global));
  if (const MixtureConfig& mixture = config.mixture; mixture.experts > 0) {
    if (!mixture.dense_layers.empty()) throw std::runtime_error("files hold no mixture in a part of the layers");
    number("expert_count", mixture.experts);
    number("expert_used_count", mixture.chosen);
    number("expert_feed_forward_length", mixture.ffn_width);
    if (mixture.shared_width > 0) number("expert_shared_feed_forward_length", mixture.shared_width);
  }
  writer.real(name + ".attention.layer_norm_rms_epsilon", config.norm_eps);
  writer.real(name + ".rope.freq_base", static_cast<float>(config.rope.theta));
  if (config.window.front() > 0) {
    if (name != "phi3" && name != "gemma3" && name != "olmo2" && name != "exaone4" && name != "gpt-oss" &&
        name != "gemma4")
      throw std::runtime_error("a sliding window is not in files of " + name);
    number("attention.sliding_window", config.window.front());
  }
  if (name == "olmo2" || name == "gemma4") {
    std::vector<bool> pattern;
    for (const std::int32_t window : config.window) pattern.push_back(window > 0);
    writer.flags(name + ".attention.sliding_window_pattern", pattern);
  }
  if (name == "granite") {
    writer.real("granite.embedding_scale", config.embedding_scale);
    writer.real("granite.residual_scale", config.residual_scale);
    writer.real("granite.attention.scale", config.score_multiplier);
    writer.real("granite.logit_scale", 1.0f / config.logit_scale);
  }
  if (name == "gemma3") {
    const auto sliding = std::ranges::count_if(config.window, [](std::int32_t window) { return window > 0; });
    number("attention.sliding_window_pattern", config.layers / (config.layers - static_cast<std::int32_t>(sliding)));
    writer.real(name + ".rope.freq_base_swa", static_cast<float>(config.local_rope.theta));
    writer.real(name + ".final_logit_softcapping", config.logit_cap);
  }
  if (config.rope.scaling == RopeScaling::linear || config.rope.scaling == RopeScaling::yarn) {
    const bool yarn = config.rope.scaling == RopeScaling::yarn;
    writer.text(name + ".rope.scaling.type", yarn ? "yarn" : "linear");
    writer.real(name + ".rope.scaling.factor", static_cast<float>(config.rope.factor));
    if (yarn) number("rope.scaling.original_context_length", config.rope.original_context);
  }
  if (config.rope.scaling == RopeScaling::longrope) {
    number("rope.scaling.original_context_length", config.rope.original_context);
    writer.real(name + ".rope.scaling.attn_factor", static_cast<float>(config.rope.attention_factor));
    for (const auto& [which, divisors] :
         {std::pair("short", config.rope.divisors), std::pair("long", config.rope.long_divisors)})
      writer.tensor(std::string("rope_factors_") + which + ".weight", {static_cast<std::int64_t>(divisors.size())},
                    BlockType::f32, encoded(divisors, BlockType::f32));
  }
  if (name == "mistral3") {
    writer.real("mistral3.rope.scaling.yarn_log_multiplier", 1.0f);
    writer.real("mistral3.attention.temperature_scale", static_cast<float>(config.temperature.beta));
  }
  return name;
}

void add_frequency_divisors(GgufWriter& writer, ModelConfig config) {
  const Rope scaled(config);
  config.rope.scaling = RopeScaling::none;
  const Rope plain(config);
  std::vector<float> divisors;
  for (std::size_t pair = 0; pair < plain.inverse_frequencies().size(); ++pair)
    divisors.push_back(static_cast<float>(plain.inverse_frequencies()[pair] / scaled.inverse_frequencies()[pair]));
  writer.tensor("rope_freqs.weight", {static_cast<std::int64_t>(divisors.size())}, BlockType::f32,
                encoded(divisors, BlockType::f32));
}

/// Adds a tensor of all experts of gpt-oss; true for the name of one. Matrices are [experts, inputs, outputs], and
/// gates and ups lie in turn.
bool add_stack(GgufWriter& writer, const SafetensorsFolder& files, const std::string& name, BlockType type) {
  constexpr std::string_view kBias = "_bias";
  if (name.find(".mlp.experts.") == name.npos) return false;
  const bool bias = name.ends_with(kBias), down = name.find("down_proj") != name.npos;
  const std::vector<std::int64_t> shape = files.shape(name);
  const std::int64_t experts = shape[0], outputs = shape.back(), inputs = bias ? 1 : shape[1];
  const StoredWeight weight = files.weight(name, experts, inputs * outputs);
  std::vector<float> values(static_cast<std::size_t>(experts * inputs * outputs));
  dequantize(values, {weight.data.get(), static_cast<std::size_t>(row_bytes(weight.type, experts * inputs * outputs))},
             weight.type);
  const std::string layer = name.substr(13, name.find('.', 13) - 13);
  const std::int64_t step = down ? 1 : 2;
  for (std::int64_t first = 0; first < step; ++first) {
    std::vector<float> part;
    for (std::int64_t e = 0; e < experts; ++e)
      for (std::int64_t n = first; n < outputs; n += step)
        for (std::int64_t c = 0; c < inputs; ++c)
          part.push_back(values[static_cast<std::size_t>((e * inputs + c) * outputs + n)]);
    const std::string stored = down ? "ffn_down_exps" : first == 0 ? "ffn_gate_exps" : "ffn_up_exps";
    const BlockType stored_type = bias ? BlockType::f32 : type;
    const std::vector<std::int64_t> stored_shape = bias ? std::vector<std::int64_t>{experts, outputs / step}
                                                        : std::vector<std::int64_t>{experts, outputs / step, inputs};
    writer.tensor("blk." + layer + "." + stored + (bias ? ".bias" : ".weight"), stored_shape, stored_type,
                  encoded(part, stored_type));
  }
  return true;
}

}  // namespace

void add_checkpoint(GgufWriter& writer, const std::filesystem::path& folder, BlockType type) {
  const ModelConfig config = parse_config(read_file(folder / "config.json"), folder.string());
  const std::string architecture = add_settings(writer, config);
  if (config.rope.scaling == RopeScaling::llama3) add_frequency_divisors(writer, config);
  const SafetensorsFolder files(folder);
  std::map<std::string, std::map<int, std::vector<float>>> experts;  // by tensor and expert
  std::map<std::string, std::vector<std::int64_t>> expert_shapes;
  for (const std::string& name : files.names()) {
    if (name == "lm_head.weight" && config.tied_embeddings) continue;
    if (config.mixture.biases && add_stack(writer, files, name, type)) continue;
    const std::vector<std::int64_t> shape = files.shape(name);
    const std::int64_t rows = shape.size() == 1 ? 1 : shape[0];
    const std::int64_t cols = shape.size() == 3 ? shape[1] * shape[2] : shape.back();
    const StoredWeight weight = files.weight(name, rows, cols);
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    dequantize(values, {weight.data.get(), static_cast<std::size_t>(row_bytes(weight.type, rows * cols))}, weight.type);
    if (name.find("norm") != name.npos)
      for (float& value : values) value += config.norm_offset;
    const bool rotated = name.find("q_proj") != name.npos || name.find("k_proj") != name.npos;
    const bool pairs =
        architecture == "llama" || architecture == "smollm3" || architecture == "granite" || architecture == "mistral3";
    if (rotated && pairs)
      values = interleaved(values, shape.size() == 1 ? 1 : static_cast<std::size_t>(cols),
                           static_cast<std::size_t>(config.head_dim));
    if (const std::string tensor = shape.size() == 3 ? "" : expert_tensor(name); !tensor.empty()) {
      const int expert = std::stoi(name.substr(name.find(".experts.") + 9));
      experts[tensor][expert] = values;
      expert_shapes[tensor] = {config.mixture.experts, rows, cols};
      continue;
    }
    const bool vector = rows == 1;  // vectors are never quantised
    const BlockType stored = vector ? BlockType::f32 : type;
    const bool post_norms = (config.post_norms && architecture != "glm4") || architecture == "gpt-oss";
    writer.tensor(stored_name(architecture == "gemma4" ? gemma4_name(name) : name, post_norms), shape, stored,
                  encoded(values, stored));
  }
  for (const auto& [tensor, by_expert] : experts) {
    std::string bytes;
    for (const auto& [expert, values] : by_expert) bytes += encoded(values, type);
    writer.tensor(tensor, expert_shapes[tensor], type, bytes);
  }
}

void add_tokenizer(GgufWriter& writer, const Json& tokenizer, const std::string& pre) {
  const bool pieces = pre.empty();
  std::size_t count = tokenizer["model"]["vocab"].size();
  for (const Json& token : tokenizer["added_tokens"]) count = std::max(count, token["id"].get<std::size_t>() + 1);
  std::vector<std::string> texts(count);
  std::vector<std::int32_t> types(count, 5);  // unused, unless a token takes the id
  std::vector<float> scores(count, 0.0f);
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) {
    const auto index = id.get<std::size_t>();
    texts[index] = text;
    const bool byte = pieces && text.size() == 6 && text.starts_with("<0x");
    types[index] = byte ? 6 : 1;
  }
  for (const Json& token : tokenizer["added_tokens"]) {
    const auto index = token["id"].get<std::size_t>();
    texts[index] = token["content"].get<std::string>();
    types[index] = token["special"].get<bool>() ? 3 : 4;
  }
  for (std::size_t id = 0; id < count; ++id)
    if (types[id] == 5) texts[id] = "[unused " + std::to_string(id) + "]";

  std::vector<std::string> merges;
  for (const Json& merge : tokenizer["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  // A piece's score is minus the rank of its first merge: the order in which training made them.
  for (std::size_t rank = merges.size(); rank-- > 0;) {
    std::string joined = merges[rank];
    joined.erase(joined.find(' '), 1);
    scores[tokenizer["model"]["vocab"][joined].get<std::size_t>()] = -static_cast<float>(rank) - 1.0f;
  }
  writer.text("tokenizer.ggml.model", pieces ? "llama" : "gpt2");
  writer.texts("tokenizer.ggml.tokens", texts);
  writer.integers("tokenizer.ggml.token_type", types);
  if (pieces) {
    writer.reals("tokenizer.ggml.scores", scores);
    if (const Json& unknown = tokenizer["model"]["unk_token"]; unknown.is_string())
      writer.number("tokenizer.ggml.unknown_token_id",
                    tokenizer["model"]["vocab"][unknown.get<std::string>()].get<std::uint32_t>());
  } else {
    writer.text("tokenizer.ggml.pre", pre);
    writer.texts("tokenizer.ggml.merges", merges);
  }
}

}  // namespace baton::test
