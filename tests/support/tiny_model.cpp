// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>

namespace baton::test {
namespace {

class RandomWeights {
 public:
  RandomWeights(Backend& backend, const TinyOptions& options)
      : backend_(backend),
        dtype_(options.dtype),
        activations_(options.activations == DType::bf16 ? Activations::bf16 : Activations::f32),
        type_(options.blocks),
        random_(options.seed) {}

  std::unique_ptr<Matrix> matrix(std::int64_t rows, std::int64_t cols, float scale) {
    if (type_) return blocks(rows, cols, scale);
    const std::vector<float> values = floats(rows * cols, 0.0f, scale);
    const ConstTensorView part = view_of(values.data(), rows, cols);
    return backend_.load_matrix({&part, 1}, dtype_, activations_);
  }
  std::vector<float> floats(std::int64_t count, float mean, float scale) {
    std::normal_distribution<float> normal(mean, scale);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }

  /// The mixer of a layer with a state; null: the layer has attention.
  std::unique_ptr<RecurrentWeights> recurrent(const ModelConfig& config, std::int32_t layer) {
    const LayerKind kind = config.mixer(layer);
    if (kind == LayerKind::attention) return nullptr;
    const DeltaShape& delta = config.recurrent.delta;
    const ScanShape& scan = config.recurrent.scan;
    const std::int64_t width = config.width;
    const bool scanned = kind == LayerKind::mamba2 || kind == LayerKind::parallel;
    std::int64_t columns = width, inner = width, projected = 3 * width, heads = 1;
    if (kind == LayerKind::delta_net) {
      columns = 2 * delta.key_cols() + delta.value_cols();
      inner = delta.value_cols();
      heads = delta.value_heads;
      projected = columns + inner + 2 * heads;
    } else if (scanned) {
      columns = scan.cols() + 2 * scan.group_cols();
      inner = scan.cols();
      heads = scan.heads;
      projected = columns + inner + heads;
    }
    const auto per_input = [](std::int64_t inputs) { return 1.5f / std::sqrt(static_cast<float>(inputs)); };
    auto weights = std::make_unique<RecurrentWeights>();
    weights->in = matrix(projected, width, per_input(width));
    weights->taps = floats(config.recurrent.conv_length * columns, 0.0f, 0.6f);
    weights->conv_bias = floats(columns, 0.0f, 0.2f);
    weights->rate = floats(heads, -0.6f, 0.1f);
    weights->step_bias = floats(heads, 0.0f, 0.5f);
    weights->skip = floats(heads, 1.0f, 0.3f);
    if (kind == LayerKind::delta_net) weights->norms = {floats(delta.value_dim, 1.0f, 0.1f)};
    for (std::int32_t group = 0; scanned && group < config.recurrent.norm_groups; ++group)
      weights->norms.push_back(floats(inner / config.recurrent.norm_groups, 1.0f, 0.1f));
    weights->out = matrix(width, inner, per_input(inner));
    return weights;
  }

 private:
  /// Random quants under scales that give values of mean 0 and deviation `scale`, within a rounding to f16, or, of
  /// MXFP4, to a power of two.
  std::unique_ptr<Matrix> blocks(std::int64_t rows, std::int64_t cols, float scale) {
    const BlockFormat& format = format_of(*type_);
    std::vector<std::byte> data(static_cast<std::size_t>(rows * row_bytes(*type_, cols)));
    for (std::byte& byte : data) byte = static_cast<std::byte>(random_());
    const auto with_scales = [&](float first, float second) {
      for (std::size_t block = 0; block < data.size(); block += static_cast<std::size_t>(format.bytes)) {
        for (const std::size_t i : {0u, 1u}) {
          const std::uint16_t half = f16_bits(i == 0 ? first : second);
          if (format.scales[i] >= 0)
            std::memcpy(&data[block + static_cast<std::size_t>(format.scales[i])], &half, sizeof(half));
        }
        if (type_ == BlockType::mxfp4)
          data[block] = static_cast<std::byte>(first > 0 ? 128 + std::lround(std::log2(first)) : 0);
      }
      std::vector<float> values(static_cast<std::size_t>(rows * cols));
      dequantize(values, data, *type_);
      return values;
    };
    const std::vector<float> quants = with_scales(1, 0), minimums = with_scales(0, 1);
    const auto mean = [](const std::vector<float>& values) {
      return std::reduce(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    };
    const double squares = std::transform_reduce(quants.begin(), quants.end(), 0.0, std::plus<>(),
                                                 [](double value) { return value * value; });
    const double middle = format.scales[1] >= 0 ? mean(quants) : 0, per_minimum = mean(minimums);
    const double factor = scale / std::sqrt(squares / static_cast<double>(quants.size()) - middle * middle);
    with_scales(static_cast<float>(factor), per_minimum == 0 ? 0 : static_cast<float>(-factor * middle / per_minimum));
    const BlockView part{data, *type_, rows, cols};
    return backend_.load_quantized_matrix({&part, 1}, dtype_ == DType::f32 ? Activations::f32 : Activations::int8);
  }

  /// The normal f16 next to zero from the value, or zero.
  static std::uint16_t f16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
    if (exponent <= 0) return 0;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | static_cast<std::uint32_t>(exponent) << 10 |
                                      (bits >> 13 & 0x3ff));
  }

  Backend& backend_;
  DType dtype_;
  Activations activations_;
  std::optional<BlockType> type_;
  std::mt19937_64 random_;
};

}  // namespace

TinyOptions hybrid_tiny(LayerKind kind) {
  TinyOptions options;
  options.layers = 4;
  options.mixers = {kind, LayerKind::attention, kind, kind};
  return options;
}

TinyOptions gemma4_tiny(std::int32_t experts) {
  TinyOptions options;
  options.layers = 5;
  options.window = 21;
  options.experts = experts;
  options.qk_norm = options.gemma4 = true;
  return options;
}

TinyOptions gemma3n_tiny() {
  TinyOptions options = gemma4_tiny(0);
  options.gemma4 = false;
  options.gemma3n = true;
  return options;
}

namespace {

/// Fills in what Gemma 3n has.
void set_gemma3n(ModelConfig& config, const TinyOptions& options) {
  config.post_norms = config.value_norm = true;
  config.activation = GateActivation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(options.width));
  config.score_multiplier = 1.0f;
  config.logit_cap = 10.0f;
  config.token_input = {16, options.vocabulary - 100};
  config.altup = {.streams = 4, .active = 1, .scaled = true, .laurel_rank = 12};
  config.rope.theta = 1e6;
  for (std::int32_t layer = 0; layer < options.layers; ++layer) {
    const bool global = config.window[static_cast<std::size_t>(layer)] == 0;
    config.rope_kinds.push_back(global ? RopeKind::global : RopeKind::local);
    config.shapes.ffn_width.push_back(layer == 0 ? options.ffn_width / 2 : options.ffn_width);
    config.shapes.kv_layer.push_back(layer >= options.layers - 2 ? layer - 2 : layer);
    config.shapes.gate_deviations.push_back(layer < 2 ? 0.5f : std::numeric_limits<float>::quiet_NaN());
  }
}

/// Fills in what Gemma 4 has. Layers without a window have other heads, whose values are keys.
void set_gemma4(ModelConfig& config, const TinyOptions& options) {
  config.post_norms = config.value_norm = config.layer_scales = true;
  config.activation = GateActivation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(options.width));
  config.score_multiplier = 1.0f;
  config.logit_cap = 10.0f;
  config.mixture.beside_mlp = options.experts > 0;
  config.mixture.dense_layers.clear();
  config.token_input = {16, options.vocabulary - 100};
  config.rope.theta = 1e6;
  config.rope.width = 2 * options.head_dim;
  config.rope.turning = options.head_dim / 4;
  for (std::int32_t layer = 0; layer < options.layers; ++layer) {
    const bool global = config.window[static_cast<std::size_t>(layer)] == 0, reads = layer >= options.layers - 2;
    config.rope_kinds.push_back(global ? RopeKind::global : RopeKind::local);
    config.shapes.head_dim.push_back(global ? 2 * options.head_dim : options.head_dim);
    config.shapes.kv_heads.push_back(global ? 1 : options.kv_heads);
    config.shapes.ffn_width.push_back(reads ? 2 * options.ffn_width : options.ffn_width);
    config.shapes.kv_layer.push_back(reads ? layer - 2 : layer);
    config.shapes.keys_as_values.push_back(global);
  }
}

}  // namespace

std::shared_ptr<const Model> make_tiny_model(Backend& backend, const TinyOptions& options) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = options.layers;
  config.width = options.width;
  config.heads = options.heads;
  config.kv_heads = options.kv_heads;
  config.head_dim = options.head_dim;
  config.ffn_width = options.ffn_width;
  config.vocabulary = options.vocabulary;
  config.context = options.context;
  config.tied_embeddings = true;
  config.qk_norm = options.qk_norm;
  config.attention_bias = options.bias;
  config.eos_tokens = options.eos_tokens;
  for (std::int32_t layer = 0; layer < options.layers; ++layer)
    config.window.push_back(layer % 2 == 1 ? options.window : 0);

  if (options.experts > 0) {
    config.mixture = {.experts = options.experts, .chosen = 2, .ffn_width = options.ffn_width / 2};
    config.mixture.dense_layers = {0};
  }
  for (std::int32_t layer = 0; options.nope && layer < options.layers; ++layer)
    config.rope_kinds.push_back(layer % 2 == 1 ? RopeKind::none : RopeKind::global);
  if (options.gemma) {
    config.post_norms = true;
    config.activation = GateActivation::gelu_tanh;
    config.embedding_scale = std::sqrt(static_cast<float>(options.width));
    config.query_divisor = 1.5f * static_cast<float>(options.head_dim);
    config.logit_cap = 10.0f;
    config.rope.theta = 1e6;
    config.rope.scaling = RopeScaling::linear;
    config.rope.factor = 4.0;
    for (const std::int32_t window : config.window)
      config.rope_kinds.push_back(window > 0 ? RopeKind::local : RopeKind::global);
  }
  if (options.olmo) {
    config.pre_norms = false;
    config.post_norms = config.qk_norm = config.qk_norm_of_row = true;
  }
  if (options.mixed) {
    config.embedding_scale = 1.5f;
    config.residual_scale = 0.6f;
    config.score_multiplier = 0.2f;
    config.logit_scale = 0.5f;
    config.rope.width = options.head_dim / 2;
    config.temperature = {.beta = 0.3, .period = 16};
    if (options.experts > 0) config.mixture.shared_width = options.ffn_width / 2;
  }

  config.mixers = options.mixers;
  config.recurrent = {.conv_length = 4,
                      .conv_bias = true,
                      .delta = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12},
                      .scan = {.heads = 4, .head_dim = 12, .groups = 2, .state = 8},
                      .least_step = 0.01f,
                      .most_step = 2.0f,
                      .norm_groups = 2};
  if (options.sinks) {
    config.sinks = true;
    config.gate_limit = 1.0f;
    config.gate_slope = 1.702f;
    config.mixture.biases = options.experts > 0;
  }

  if (options.gemma4) set_gemma4(config, options);
  if (options.gemma3n) set_gemma3n(config, options);

  RandomWeights random(backend, options);
  Weights weights;
  const auto scale = [](std::int64_t inputs) { return 1.5f / std::sqrt(static_cast<float>(inputs)); };
  weights.embedding = random.matrix(config.vocabulary, options.width, 1.0f);
  weights.lm_head = weights.embedding;
  weights.final_norm = random.floats(options.width, 1.0f, 0.1f);
  for (std::int32_t i = 0; i < options.layers; ++i) {
    LayerWeights layer;
    const std::int64_t head_dim = config.head_dim_of(i), q_cols = options.heads * head_dim;
    const std::int64_t k_cols = config.kv_layer(i) == i ? config.kv_heads_of(i) * head_dim : 0;
    const std::int64_t qkv_cols = q_cols + (config.keys_as_values(i) ? 1 : 2) * k_cols,
                       ffn_width = config.ffn_width_of(i);
    if (config.pre_norms) layer.input_norm = random.floats(options.width, 1.0f, 0.1f);
    layer.recurrent = random.recurrent(config, i);
    const bool attends = config.mixer(i) == LayerKind::attention || config.mixer(i) == LayerKind::parallel;
    if (attends) layer.qkv = random.matrix(qkv_cols, options.width, scale(options.width));
    if (options.bias) layer.qkv_bias = random.floats(qkv_cols, 0.0f, 0.5f);
    if (config.qk_norm) {
      const float mean = options.gemma4 || options.gemma3n ? 0.5f : 1.0f;  // its scores have no other scale
      layer.q_norm = random.floats(options.olmo ? q_cols : head_dim, mean, 0.1f);
      if (k_cols > 0) layer.k_norm = random.floats(options.olmo ? k_cols : head_dim, mean, 0.1f);
    }
    if (config.value_norm && k_cols > 0) layer.v_norm.assign(static_cast<std::size_t>(head_dim), 1.0f);
    if (config.sinks) layer.sinks = random.floats(options.heads, 0.0f, 1.5f);
    if (attends) layer.output = random.matrix(options.width, q_cols, scale(q_cols));
    if (config.pre_norms) layer.mlp_norm = random.floats(options.width, 1.0f, 0.1f);
    if (config.post_norms) {
      layer.attention_post_norm = random.floats(options.width, 1.0f, 0.1f);
      layer.mlp_post_norm = random.floats(options.width, 1.0f, 0.1f);
    }
    if (config.mixture.in(i)) {
      const std::int64_t ffn = config.mixture.ffn_width;
      layer.router = random.matrix(options.experts, options.width, scale(options.width));
      for (std::int32_t expert = 0; expert < options.experts; ++expert) {
        auto gate_up = random.matrix(2 * ffn, options.width, scale(options.width));
        layer.experts.push_back({std::move(gate_up), random.matrix(options.width, ffn, scale(ffn))});
        if (!config.mixture.biases) continue;
        layer.experts.back().gate_up_bias = random.floats(2 * ffn, 0.0f, 0.3f);
        layer.experts.back().down_bias = random.floats(options.width, 0.0f, 0.3f);
      }
      if (config.mixture.biases) layer.router_bias = random.floats(options.experts, 0.0f, 0.3f);
      if (const std::int64_t shared = config.mixture.shared_width; shared > 0) {
        layer.shared.gate_up = random.matrix(2 * shared, options.width, scale(options.width));
        layer.shared.down = random.matrix(options.width, shared, scale(shared));
        layer.shared_gate = random.matrix(1, options.width, scale(options.width));
      }
      if (config.mixture.beside_mlp) {
        for (auto* norm : {&layer.router_norm, &layer.experts_norm, &layer.experts_post_norm, &layer.mlp_own_norm})
          *norm = random.floats(options.width, 1.0f, 0.1f);
        layer.expert_scale = random.floats(options.experts, 1.0f, 0.1f);
      }
    }
    if (!config.mixture.in(i) || config.mixture.beside_mlp) {
      layer.gate_up = random.matrix(2 * ffn_width, options.width, scale(options.width));
      layer.down = random.matrix(options.width, ffn_width, scale(ffn_width));
    }
    if (const std::int64_t inputs = config.token_input.width; inputs > 0) {
      auto gate = random.matrix(inputs, options.width, scale(options.width));
      layer.token_input = std::make_unique<TokenInputWeights>(
          TokenInputWeights{std::move(gate), random.matrix(options.width, inputs, scale(inputs)),
                            random.floats(options.width, 1.0f, 0.1f)});
    }
    if (const std::int64_t streams = config.altup.streams; streams > 1) {
      const std::int64_t rank = config.altup.laurel_rank;
      AltUpWeights altup;
      altup.router_norm = random.floats(options.width, 1.0f, 0.1f);
      altup.router = random.matrix(streams, options.width, scale(options.width));
      altup.predict = random.matrix(streams * streams, streams, 0.3f);
      altup.correct = random.matrix(streams, streams, 0.3f);
      altup.correct_bias.assign(static_cast<std::size_t>(streams), 1.0f);
      altup.scale = random.floats(options.width, 1.0f, 0.1f);
      altup.laurel_in = random.matrix(rank, options.width, scale(options.width));
      altup.laurel_out = random.matrix(options.width, rank, scale(rank));
      altup.laurel_norm = random.floats(options.width, 1.0f, 0.1f);
      layer.altup = std::make_unique<AltUpWeights>(std::move(altup));
    }
    if (config.layer_scales) layer.scale = random.floats(1, 1.0f, 0.2f).front();
    weights.layers.push_back(std::move(layer));
  }
  if (const std::int64_t inputs = config.token_input.width; inputs > 0) {
    weights.token_table = random.matrix(config.token_input.rows, inputs * options.layers, 0.3f);
    weights.token_projection = random.matrix(inputs * options.layers, options.width, scale(options.width));
    weights.token_norm = random.floats(inputs, 1.0f, 0.1f);
  }
  for (std::int32_t stream = 1; stream < config.altup.streams; ++stream)
    for (auto* projections : {&weights.stream_in, &weights.stream_out})
      projections->push_back(random.matrix(options.width, options.width, scale(options.width)));
  if (options.kept) weights.keep_vectors(backend);
  weights.bytes = weights.embedding->bytes;
  for (const LayerWeights& w : weights.layers)
    weights.bytes += (w.qkv ? w.qkv->bytes + w.output->bytes : 0) + (w.gate_up ? w.gate_up->bytes + w.down->bytes : 0);

  ModelOptions model_options;
  model_options.dtype = options.dtype;
  model_options.kv_dtype = options.kv_dtype;
  model_options.activations = options.activations;
  model_options.context = options.context;
  LayerRopes ropes(config);
  ModelText text{.path = "tiny",
                 .fingerprint = "tiny",
                 .tokenizer = Tokenizer::parse(byte_tokenizer_json(), "tokenizer.json"),
                 .chat_template = options.chat_template};
  return std::make_shared<const Model>(
      Model{std::move(text), std::move(config), model_options, std::move(ropes), std::move(weights), {}});
}

TinyOptions quantized_tiny(BlockType type) {
  const std::int32_t wide = format_of(type).values == 256 ? 256 : 64;
  return {.layers = 2,
          .width = wide,
          .heads = wide / 16,
          .kv_heads = 2,
          .head_dim = 16,
          .ffn_width = 2 * wide,
          .bias = true,
          .blocks = type};
}

std::vector<TokenId> random_tokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 256);
  return tokens;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace baton::test
