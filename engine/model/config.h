// SPDX-License-Identifier: Apache-2.0
// What "quantization_config" of a config.json says about the weights of a safetensors checkpoint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <baton/system_facts.h>

#include "engine/backend/recurrence.h"
#include "engine/base/errors.h"

namespace baton {

class JsonFields;

/// plain: no tensor is quantised. fp8: bytes of E4M3 with scales. gptq, awq: integers of 4 bits with scales and zeros,
/// in words of eight; gptq packs along the inputs of a matrix, awq along its outputs. mxfp4: experts in 4-bit floats
/// with a power of two for each 32.
enum class WeightFormat : std::uint8_t { plain, fp8, gptq, awq, mxfp4 };

struct QuantizationConfig {
  WeightFormat format = WeightFormat::plain;
  std::int32_t group_size = 0;         // gptq, awq: inputs that share a scale; 0: all inputs of an output
  bool ordered_by_activation = false;  // gptq: "g_idx" says which group an input belongs to
  bool zeros_less_one = false;         // gptq: a zero of 8 is stored as 7
  std::int32_t block_rows = 0;         // fp8: outputs that share a scale; 0: one scale for a tensor or for each output
  std::int32_t block_cols = 0;         // fp8: inputs that share a scale
};

/// Reads "quantization_config" of a config.json; without it all weights are plain. `origin` names the file in errors.
/// Throws ModelError: a method or a variant that is not supported, by name, or an impossible value.
QuantizationConfig read_quantization(const JsonFields& config, const std::string& origin);

// What a model's config.json (or the metadata of its GGUF file, in the same terms) says, checked once at the border.

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn, longrope };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3
  std::int32_t original_context = 0;  // llama3, yarn, longrope
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;             // yarn
  double attention_factor = 0.0;      // yarn; 0: 0.1 ln(factor) + 1. longrope
  bool truncate = true;               // yarn
  std::int32_t turning = 0;           // the first pairs, which turn; those behind them have a frequency of 0; 0: all
  std::int32_t width = 0;             // R, the first columns of a head, which are rotated; 0: all D
  std::vector<float> divisors;        // [R/2] of each frequency: GGUF files instead of a scaling; longrope; else empty
  std::vector<float> long_divisors;   // [R/2] longrope: in the place of divisors if the context exceeds the original
};

/// Which RoPE a layer has. Without one (NoPE), keys and queries are rotated by angles of 0, which changes no bit.
enum class RopeKind : std::uint8_t { global, local, none };

/// Queries at position p are multiplied by 1 + beta ln(1 + floor(p / period)), which sharpens attention over a long
/// context (Ministral 3).
struct QueryTemperature {
  double beta = 0.0;  // 0: queries stay as they are
  std::int32_t period = 1;

  float at(std::int32_t position) const;
};

/// The activation of the gate of an MLP.
/// relu_squared: the MLP has no gate.
enum class GateActivation : std::uint8_t { silu, gelu_tanh, relu_squared };

/// A mixture of experts in the place of the MLP: a token runs through the experts that a router chooses for it.
struct MixtureConfig {
  std::int32_t experts = 0;                // E; 0: the model has none
  std::int32_t chosen = 0;                 // experts of a token
  std::int32_t ffn_width = 0;              // of an expert
  bool normalized = true;                  // the weights of a token's experts sum up to 1
  bool sigmoid = false;                    // weights are sigmoids of the router's logits, not their softmax
  bool choice_bias = false;                // a bias is added to what the experts are chosen by, not to their weights
  float weight_sum_eps = 0.0f;             // added to the sum that normalises
  float weight_scale = 1.0f;               // multiplies the weights
  std::vector<std::int32_t> dense_layers;  // which have an MLP all the same; ascending, each once
  std::int32_t shared_width = 0;           // of the expert that every token runs through as well; 0: there is none
  bool shared_gate = true;                 // its result is multiplied by the sigmoid of a product
  std::int32_t latent_width = 0;           // of what experts read and write, projected from and to C; 0: C itself
  bool biases = false;                     // of the router and of the experts' matrices
  bool beside_mlp = false;                 // the layer has an MLP too; both results have norms, and are added

  bool in(std::int32_t layer) const { return experts > 0 && !std::ranges::binary_search(dense_layers, layer); }
};

/// A part of a layer: a mixer, which reads what its sequence stored at other positions, or a feed-forward part, which
/// sees its own row alone.
/// parallel: attention and Mamba2 over the same input.
/// mlp_and_experts: an MLP and a mixture over the same residual stream.
/// token_input: adds what a layer makes of the row's token (per-layer embeddings), behind the feed-forward part.
enum class LayerKind : std::uint8_t {
  none,
  attention,
  short_convolution,
  delta_net,
  mamba2,
  parallel,
  feed_forward,
  experts,
  mlp_and_experts,
  token_input
};
inline constexpr std::size_t kLayerKinds = 10;

/// The layers that keep a state instead of keys and values; a model has one kind of them.
struct RecurrentConfig {
  std::int32_t conv_length = 0;  // rows that a convolution sees
  bool conv_bias = false;
  bool bias = false;               // of the projections
  std::vector<float> multipliers;  // of the projections: gate, x, B, C, step of Mamba2; empty: none
  float out_multiplier = 1.0f;     // of the result, in a parallel layer
  DeltaShape delta;
  ScanShape scan;
  float least_step = 0.0f, most_step = 0.0f;  // of scan
  std::int32_t norm_groups = 0;               // scan: groups of the result with an RMSNorm of their own; 0: no norm
  bool gate_behind_norm = false;  // scan: the gate multiplies the normalised result, not the input of the norm
};

/// What layers have in their own way; each [L], or empty: as the model.
struct LayerShapes {
  std::vector<std::int32_t> head_dim;   // D
  std::vector<std::int32_t> kv_heads;   // K
  std::vector<std::int32_t> ffn_width;  // F
  /// The layer whose keys and values a layer reads: itself, or an earlier one, and then it stores none.
  std::vector<std::int32_t> kv_layer;
  std::vector<bool> keys_as_values;  // values are the product of k, before its norm
  /// Of an MLP's gates only what exceeds their mean by so many standard deviations is left; NaN: all of them are.
  std::vector<float> gate_deviations;

  static std::int32_t of(const std::vector<std::int32_t>& own, std::int32_t layer, std::int32_t model) {
    return own.empty() ? model : own[static_cast<std::size_t>(layer)];
  }
};

/// Per-layer embeddings: each layer has an input of its own, which depends on the row's token alone.
struct TokenInputConfig {
  std::int32_t width = 0;  // P; 0: there are none
  std::int32_t rows = 0;   // tokens that have a row in the table; others take the first one
};

/// AltUp (Gemma 3n; arXiv 2301.13310): a row has several residual streams. The parts of a layer read and write one of
/// them; small maps predict the others before the layer, and correct them behind it.
struct AltUpConfig {
  std::int32_t streams = 1;      // 1: there is no AltUp
  std::int32_t active = 0;       // the stream of the layers' parts
  bool scaled = false;           // token inputs read that stream multiplied by a vector of the layer
  std::int32_t laurel_rank = 0;  // R of a low-rank map beside attention (LAuReL); 0: there is none
};

struct ModelConfig {
  std::string architecture;     // "LlamaForCausalLM"
  std::int32_t layers = 0;      // L
  std::int32_t width = 0;       // C
  std::int32_t heads = 0;       // H
  std::int32_t kv_heads = 0;    // K
  std::int32_t head_dim = 0;    // D
  std::int32_t ffn_width = 0;   // F
  std::int32_t vocabulary = 0;  // V
  std::int32_t context = 0;     // longest sequence, tokens
  float norm_eps = 1e-5f;
  bool tied_embeddings = false;
  bool attention_bias = false;  // biases of q, k, v
  bool output_bias = false;     // bias of o
  bool mlp_bias = false;
  bool attention_gate = false;        // the result of attention is multiplied by the sigmoid of a gate, [H D]
  bool qk_norm = false;               // RMSNorm of q and k before RoPE, of each head
  bool qk_norm_of_row = false;        // or of all heads of a row together
  bool norm_behind_rope = false;      // q and k are normalised behind RoPE, head by head
  bool value_norm = false;            // RMSNorm of each head of v, without weights
  bool layer_scales = false;          // the residual stream behind each layer is multiplied by a number of the layer
  bool pre_norms = true;              // RMSNorm of the inputs of attention and MLP
  bool post_norms = false;            // RMSNorm of the outputs of attention and MLP, before they are added
  float norm_offset = 0.0f;           // added to the weights of norms as they are stored
  float embedding_scale = 1.0f;       // multiplies embeddings
  float residual_scale = 1.0f;        // multiplies the outputs of attention and MLP, before they are added
  float query_divisor = 0.0f;         // scores are divided by its square root; 0: by that of D
  float score_multiplier = 0.0f;      // or are multiplied by this; 0: they are not
  float logit_scale = 1.0f;           // multiplies logits
  float logit_cap = 0.0f;             // logits become cap * tanh(logit / cap); 0: none
  float attention_multiplier = 1.0f;  // of the result of attention, in a parallel layer
  float gate_multiplier = 1.0f;       // of an MLP's gate before its activation
  float feed_multiplier = 1.0f;       // of an MLP's result
  GateActivation activation = GateActivation::silu;
  float gate_limit = 0.0f;         // of silu: gates are clamped from above, ups from both sides; 0: nothing is
  float gate_slope = 1.0f;         // then the result is (up + 1) * gate * sigmoid(slope * gate)
  bool sinks = false;              // attention has a sink for each head
  bool interleaved_heads = false;  // checkpoints hold the rotated columns of a head as pairs (2 j, 2 j + 1)
  QueryTemperature temperature;
  MixtureConfig mixture;
  LayerShapes shapes;
  TokenInputConfig token_input;
  AltUpConfig altup;
  std::vector<LayerKind> mixers;  // [L], or empty: all attention
  bool single_parts = false;      // a layer has a mixer or, if that is `none`, a feed-forward part
  RecurrentConfig recurrent;
  RopeConfig rope;                       // RopeKind::global
  RopeConfig local_rope;                 // RopeKind::local
  std::vector<RopeKind> rope_kinds;      // [L], or empty: all global
  std::vector<std::int32_t> window;      // [L] sliding window in tokens, 0: none
  std::vector<std::int32_t> eos_tokens;  // of config.json and generation_config.json; see end_tokens
  std::int32_t bos_token = -1;           // -1: none
  QuantizationConfig quantization;       // of safetensors
  std::vector<std::string> left_out;     // parts of the file that are not run: "a vision tower"

  RopeKind rope_kind(std::int32_t layer) const {
    return rope_kinds.empty() ? RopeKind::global : rope_kinds[static_cast<std::size_t>(layer)];
  }
  LayerKind mixer(std::int32_t layer) const {
    return mixers.empty() ? LayerKind::attention : mixers[static_cast<std::size_t>(layer)];
  }
  bool attends(std::int32_t layer) const {
    return mixer(layer) == LayerKind::attention || mixer(layer) == LayerKind::parallel;
  }
  std::int32_t head_dim_of(std::int32_t layer) const { return LayerShapes::of(shapes.head_dim, layer, head_dim); }
  std::int32_t kv_heads_of(std::int32_t layer) const { return LayerShapes::of(shapes.kv_heads, layer, kv_heads); }
  std::int32_t ffn_width_of(std::int32_t layer) const { return LayerShapes::of(shapes.ffn_width, layer, ffn_width); }
  /// What passes from layer to layer: the columns of all residual streams of a row.
  std::int32_t stream_width() const { return altup.streams * width; }
  /// The layer whose keys and values an attention layer reads.
  std::int32_t kv_layer(std::int32_t layer) const { return LayerShapes::of(shapes.kv_layer, layer, layer); }
  /// The first of the last layers that read the keys and values of others; L: there are none.
  std::int32_t first_kv_reader() const {
    std::int32_t layer = layers;
    while (layer > 0 && kv_layer(layer - 1) != layer - 1) --layer;
    return layer;
  }
  /// True for an attention layer that has keys and values of its own.
  bool stores_kv(std::int32_t layer) const { return attends(layer) && kv_layer(layer) == layer; }
  bool keys_as_values(std::int32_t layer) const {
    return !shapes.keys_as_values.empty() && shapes.keys_as_values[static_cast<std::size_t>(layer)];
  }
  /// See LayerShapes; NaN: the layer is not sparse.
  float gate_deviations(std::int32_t layer) const {
    return shapes.gate_deviations.empty() ? std::numeric_limits<float>::quiet_NaN()
                                          : shapes.gate_deviations[static_cast<std::size_t>(layer)];
  }
  const RopeConfig& rope_of(RopeKind kind) const { return kind == RopeKind::global ? rope : local_rope; }
  /// The columns of a head that are rotated.
  std::int32_t rotated(RopeKind kind) const { return rope_of(kind).width > 0 ? rope_of(kind).width : head_dim; }
  /// What scores of a layer are multiplied by before the softmax.
  float score_scale(std::int32_t layer = 0) const {
    if (score_multiplier > 0.0f) return score_multiplier;
    return 1.0f / std::sqrt(query_divisor > 0.0f ? query_divisor : static_cast<float>(head_dim_of(layer)));
  }
};

/// The ids that end an answer, in their order and each once. Every token of an answer is compared with all of them, and
/// published models have up to a handful: throws ModelError for more than 64. `origin` names the file in errors.
std::vector<std::int32_t> end_tokens(std::span<const std::int32_t> ids, const std::string& origin);

/// The classes of models ("Qwen2ForCausalLM") that a config.json may name.
std::vector<std::string_view> model_classes();

/// Parses the bytes of a config.json; `origin` names the file in errors. Of a model that also has a vision or an audio
/// tower the text model is read ("text_config"), and left_out names the others. Throws ModelError: not JSON, a missing
/// or impossible value, or something that is not supported, by name.
ModelConfig parse_config(std::string_view json, const std::string& origin);

// What is told of the families that config.cpp and gguf_config.cpp read.

/// One for each family, in the order of its name. A test compares them with model_classes(), gguf_architectures() and
/// the goldens.
std::vector<ModelFamily> model_families();

/// The families as a table of Markdown, for docs/models.md.
std::string families_markdown();

}  // namespace baton
