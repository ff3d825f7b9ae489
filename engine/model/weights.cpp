// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace baton {
namespace {

/// Index of the first element whose bits without the sign exceed `limit`, or -1. Blocks without a branch let the
/// compiler use vector compares: more than 10 GB/s on one core.
template <class Bits>
std::int64_t first_above(const std::byte* data, std::int64_t count, Bits limit) {
  constexpr std::int64_t kPiece = 4096;
  const Bits* values = reinterpret_cast<const Bits*>(data);
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t end = std::min(count, begin + kPiece);
    Bits found = 0;
    for (std::int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((values[i] & kMagnitude) > limit);
    if (found == 0) continue;
    for (std::int64_t i = begin; i < end; ++i)
      if ((values[i] & kMagnitude) > limit) return i;
  }
  return -1;
}

float element(ConstTensorView view, std::int64_t index) {
  if (view.dtype == DType::f32) return view.f32()[index];
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(view.data)[index];
  return view.dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/// The element type of a weight that a view can point at.
std::optional<DType> plain_type(const StoredWeight& weight) {
  std::optional<DType> type;
  if (weight.type == BlockType::f32) type = DType::f32;
  if (weight.type == BlockType::bf16) type = DType::bf16;
  if (weight.type == BlockType::f16) type = DType::f16;
  return weight.interleaved == 0 && !weight.order ? type : std::nullopt;
}

/// NaN and infinity have all exponent bits set. An f32 value above the largest bf16 would round to infinity there.
/// `first_row`: of the view in the tensor.
void check_finite(ConstTensorView view, const std::string& name, bool is_vector, std::int64_t first_row = 0) {
  const std::int64_t count = view.rows * view.cols;
  const std::int64_t index = view.dtype == DType::f32    ? first_above<std::uint32_t>(view.data, count, 0x7f7f7fff)
                             : view.dtype == DType::bf16 ? first_above<std::uint16_t>(view.data, count, 0x7f7f)
                                                         : first_above<std::uint16_t>(view.data, count, 0x7bff);
  if (index < 0) return;
  const std::string where = is_vector ? fmt::format("[{}]", index)
                                      : fmt::format("[{}, {}]", first_row + index / view.cols, index % view.cols);
  throw ModelError(
      fmt::format("tensor \"{}\" holds {} at {}, expected finite values", name, element(view, index), where));
}

/// One tensor by name and its expected rows; columns are common to the parts of a stack. `interleaved` and `rotated`:
/// StoredWeight's, if every file of the family holds it so.
struct WeightPart {
  std::string name;
  std::int64_t rows;
  std::int32_t interleaved = 0, rotated = 0;
  /// Some rows of a tensor of `stored` rows, in an order of their own; null: all, as above.
  std::shared_ptr<const std::vector<std::int64_t>> order = nullptr;
  std::int64_t stored = 0;
};

class Loader {
 public:
  Loader(Backend& backend, const WeightSource& files, DType dtype, DType activations, const LoadProgress& progress)
      : backend_(backend),
        files_(files),
        dtype_(dtype),
        activations_(activations == DType::bf16 ? Activations::bf16 : Activations::f32),
        progress_(progress),
        file_bytes_(files.total_bytes()) {}

  std::unique_ptr<Matrix> matrix(const std::vector<WeightPart>& parts, std::int64_t cols) {
    std::vector<StoredWeight> stored;
    for (const WeightPart& part : parts) stored.push_back(weight(part, part.rows, cols));
    const bool blocks = std::ranges::all_of(stored, [](const StoredWeight& part) { return is_quantized(part.type); });
    std::unique_ptr<Matrix> matrix = blocks ? quantized(stored, parts) : dense(stored, parts);
    bytes_ += matrix->bytes;
    return matrix;
  }

  std::vector<float> vector(const std::vector<WeightPart>& parts) {
    std::vector<float> values;
    for (const WeightPart& part : parts) {
      const std::int64_t length = part.order ? part.stored : part.rows;
      const StoredWeight found =
          read(part.order ? some(part, files_.weight(part.name, 1, length), 1) : weight(part, 1, length));
      std::vector<float> stored(static_cast<std::size_t>(length));
      dequantize(stored, {found.data.get(), static_cast<std::size_t>(row_bytes(found.type, length))}, found.type);
      check_finite(view_of(stored.data(), 1, length), part.name, true);
      for (std::int64_t i = 0; i < part.rows; ++i) values.push_back(stored[static_cast<std::size_t>(found.place(i))]);
    }
    bytes_ += values.size() * sizeof(float);
    return values;
  }

  /// The weights of a norm; `offset` is added to what is stored.
  std::vector<float> norm(const std::string& name, std::int64_t width, float offset) {
    std::vector<float> values = vector({{name, width}});
    for (float& value : values) value += offset;
    return values;
  }

  /// The taps of a convolution [columns, length], stored column by column, as [length, columns].
  std::vector<float> taps(const std::string& name, std::int64_t columns, std::int64_t length) {
    const StoredWeight found = read(files_.weight(name, columns, length));
    std::vector<float> row(static_cast<std::size_t>(length)), all(static_cast<std::size_t>(columns * length));
    for (std::int64_t column = 0; column < columns; ++column) {
      dequantize(row, found.row(column), found.type);
      check_finite(view_of(row.data(), 1, length), name, false, column);
      for (std::int64_t j = 0; j < length; ++j)
        all[static_cast<std::size_t>(j * columns + column)] = row[static_cast<std::size_t>(j)];
    }
    bytes_ += all.size() * sizeof(float);
    return all;
  }

  bool has(const std::string& name) const { return files_.contains(name); }
  std::size_t bytes() const { return bytes_; }

 private:
  StoredWeight weight(const WeightPart& part, std::int64_t rows, std::int64_t cols) const {
    if (part.order) return some(part, files_.weight(part.name, part.stored, cols), rows);
    StoredWeight found = files_.weight(part.name, rows, cols);
    if (found.interleaved == 0) {
      found.interleaved = part.interleaved;
      found.rotated = part.rotated;
    }
    return found;
  }

  /// The part's rows of a tensor.
  static StoredWeight some(const WeightPart& part, const StoredWeight& tensor, std::int64_t rows) {
    StoredWeight whole = tensor.whole();
    whole.order = part.order;
    whole.rows = rows;
    return whole;
  }

  StoredWeight read(const StoredWeight& weight) {
    StoredWeight whole = weight.whole();
    count(static_cast<std::size_t>(whole.rows * row_bytes(whole.type, whole.cols)));
    return whole;
  }

  /// Adds bytes that were read, and reports progress where it grew by a thousandth.
  void count(std::size_t bytes) {
    read_ += bytes;
    const double fraction = static_cast<double>(read_) / static_cast<double>(std::max(file_bytes_, read_ + 1));
    if (!progress_ || fraction < reported_ + 0.001) return;
    reported_ = fraction;
    progress_(fraction);
  }

  std::unique_ptr<Matrix> quantized(const std::vector<StoredWeight>& stored, const std::vector<WeightPart>& parts) {
    std::vector<BlockRows> rows;
    for (std::size_t i = 0; i < stored.size(); ++i)
      rows.push_back({stored[i].type, stored[i].rows, stored[i].cols, reader(stored[i], parts[i].name)});
    return backend_.load_quantized_rows(rows, dtype_ == DType::f32 ? Activations::f32 : Activations::int8);
  }

  /// Reads rows of a quantised weight in the engine's order, with finite scales.
  std::function<void(std::span<std::byte>, std::int64_t)> reader(const StoredWeight& weight, const std::string& name) {
    if (weight.data == nullptr && weight.interleaved == 0) {
      return [this, &weight, &name](std::span<std::byte> out, std::int64_t first) {
        weight.read(out, first);
        check_scales(out, weight, name, first);
        count(out.size());
      };
    }
    return [this, whole = read(weight), &name](std::span<std::byte> out, std::int64_t first) {
      for (std::size_t at = 0; at < out.size(); ++first) {
        const std::span<const std::byte> row = whole.row(first);
        std::copy(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
        check_scales(row, whole, name, whole.place(first));
        at += row.size();
      }
    };
  }

  /// Throws for a scale that is not finite; `blocks` are rows from the stored row `first` on.
  static void check_scales(std::span<const std::byte> blocks, const StoredWeight& weight, const std::string& name,
                           std::int64_t first) {
    const std::int64_t bad = first_infinite_block(blocks, weight.type);
    if (bad < 0) return;
    const BlockFormat& format = format_of(weight.type);
    const std::int64_t in_row = weight.cols / format.values;
    throw ModelError(fmt::format("tensor \"{}\" holds a block of {} at [{}, {}] whose scale is not finite", name,
                                 format.name, first + bad / in_row, bad % in_row * format.values));
  }

  std::unique_ptr<Matrix> dense(std::vector<StoredWeight>& stored, const std::vector<WeightPart>& parts) {
    std::vector<ConstTensorView> views;
    std::vector<std::vector<std::byte>> values(stored.size());  // goes when the backend has its own copy
    for (StoredWeight& weight : stored) weight = read(weight);
    for (std::size_t i = 0; i < stored.size(); ++i)
      views.push_back(plain_type(stored[i]) ? checked(stored[i], parts[i].name)
                                            : dequantized(values[i], stored[i], parts[i].name));
    return backend_.load_matrix(views, dtype_, activations_);
  }

  static ConstTensorView checked(const StoredWeight& weight, const std::string& name) {
    const ConstTensorView view =
        BasicView<const std::byte>{weight.data.get(), *plain_type(weight), weight.rows, weight.cols, weight.cols};
    check_finite(view, name, false);
    return view;
  }

  /// The weight's values in `memory`, in the type that the matrix will have.
  ConstTensorView dequantized(std::vector<std::byte>& memory, const StoredWeight& weight,
                              const std::string& name) const {
    memory.resize(static_cast<std::size_t>(weight.rows * weight.cols) * size_of(dtype_));
    std::vector<float> row(static_cast<std::size_t>(weight.cols));
    const ConstTensorView values = view_of(row.data(), 1, weight.cols);
    const TensorView out{memory.data(), dtype_, weight.rows, weight.cols, weight.cols};
    for (std::int64_t i = 0; i < weight.rows; ++i) {
      check_scales(weight.row(i), weight, name, weight.place(i));
      dequantize(row, weight.row(i), weight.type);
      check_finite(values, name, false, i);
      if (dtype_ == DType::f32) {
        std::copy(row.begin(), row.end(), out.f32(i));
      } else {
        std::transform(row.begin(), row.end(), out.bf16(i), f32_to_bf16);
      }
    }
    return out;
  }

  Backend& backend_;
  const WeightSource& files_;
  DType dtype_;
  Activations activations_;
  const LoadProgress& progress_;
  const std::size_t file_bytes_;  // in all; sources look at every tensor for it
  std::size_t bytes_ = 0;
  std::size_t read_ = 0;  // of the files
  double reported_ = 0;
};

/// An MLP below `block`, whose gate and up are one tensor in some families, or which has no gate.
struct GatedNames {
  std::string block;
  bool fused = false;
  bool gated = true;

  std::vector<WeightPart> gate_up(const char* kind, std::int64_t ffn) const {
    if (!gated) return {{block + "up_proj" + kind, ffn}};
    if (fused) return {{block + "gate_up_proj" + kind, 2 * ffn}};
    return {{block + "gate_proj" + kind, ffn}, {block + "up_proj" + kind, ffn}};
  }
  std::vector<WeightPart> down(const char* kind, std::int64_t width) const {
    return {{block + "down_proj" + kind, width}};
  }
};

/// The names of an MLP. GGUF files hold the tensors of Phi-3 and GLM-4 fused under the name of `up` alone.
GatedNames gated_names(const Loader& loader, const ModelConfig& config, const std::string& block) {
  const bool always = config.architecture == "Phi3ForCausalLM" || config.architecture == "Glm4ForCausalLM";
  const bool gated = config.activation != GateActivation::relu_squared;
  const bool one = !loader.has(block + "gate_proj.weight") && loader.has(block + "gate_up_proj.weight");
  return {block, gated && (always || one), gated};
}

void load_shared_expert(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& block) {
  const std::int64_t shared = config.mixture.shared_width;
  const GatedNames names = gated_names(loader, config, block + "shared_expert.");
  layer.shared = {loader.matrix(names.gate_up(".weight", shared), config.width),
                  loader.matrix(names.down(".weight", config.width), shared)};
  if (config.mixture.shared_gate)
    layer.shared_gate = loader.matrix({{block + "shared_expert_gate.weight", 1}}, config.width);
}

/// The experts of gpt-oss: biases everywhere, and in checkpoints one matrix of gates and ups in turn.
void load_biased_mixture(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& block) {
  const MixtureConfig& mixture = config.mixture;
  const std::int64_t width = config.width, ffn = mixture.ffn_width;
  const auto expert_name = [&](std::int32_t expert) { return fmt::format("{}experts.{}.", block, expert); };
  layer.router = loader.matrix({{block + "router.weight", mixture.experts}}, width);
  layer.router_bias = loader.vector({{block + "router.bias", mixture.experts}});
  const bool in_turn = loader.has(expert_name(0) + "gate_up_proj.weight");
  if (const std::string beyond = expert_name(mixture.experts) + "gate_up_proj.weight"; loader.has(beyond))
    throw ModelError(fmt::format("tensor \"{}\" is there, expected {} experts", beyond, mixture.experts));
  for (std::int32_t expert = 0; expert < mixture.experts; ++expert) {
    const GatedNames names{expert_name(expert), in_turn};
    const auto gate_up = [&](const char* kind) {
      std::vector<WeightPart> parts = names.gate_up(kind, ffn);
      if (in_turn) parts.front().interleaved = static_cast<std::int32_t>(2 * ffn);
      return parts;
    };
    layer.experts.push_back({loader.matrix(gate_up(".weight"), width), loader.matrix(names.down(".weight", width), ffn),
                             loader.vector(gate_up(".bias")), loader.vector(names.down(".bias", width))});
  }
}

void load_mixture(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  if (config.mixture.biases) return load_biased_mixture(loader, config, layer, prefix + "mlp.");
  const MixtureConfig& mixture = config.mixture;
  const std::int64_t width = mixture.latent_width > 0 ? mixture.latent_width : config.width, ffn = mixture.ffn_width;
  const bool mixtral = config.architecture == "MixtralForCausalLM";
  const std::string block = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
  layer.router = loader.matrix({{block + "gate.weight", mixture.experts}}, config.width);
  if (mixture.choice_bias) layer.choice_bias = loader.vector({{block + "expert_bias", mixture.experts}});
  for (std::int32_t expert = 0; expert < mixture.experts; ++expert) {
    const std::string own = fmt::format("{}experts.{}.", block, expert);
    if (mixtral) {
      layer.experts.push_back({loader.matrix({{own + "w1.weight", ffn}, {own + "w3.weight", ffn}}, width),
                               loader.matrix({{own + "w2.weight", width}}, ffn)});
      continue;
    }
    const GatedNames names = gated_names(loader, config, own);
    layer.experts.push_back(
        {loader.matrix(names.gate_up(".weight", ffn), width), loader.matrix(names.down(".weight", width), ffn)});
  }
  if (mixture.latent_width > 0) {
    layer.latent_in = loader.matrix({{block + "latent_in.weight", width}}, config.width);
    layer.latent_out = loader.matrix({{block + "latent_out.weight", config.width}}, width);
  }
  if (mixture.shared_width > 0) load_shared_expert(loader, config, layer, block);
  if (!mixture.beside_mlp) return;
  const auto norm = [&](const char* name) {
    return loader.norm(prefix + name + ".weight", config.width, config.norm_offset);
  };
  layer.mlp_own_norm = norm("post_feedforward_layernorm_1");
  layer.experts_norm = norm("pre_feedforward_layernorm_2");
  layer.experts_post_norm = norm("post_feedforward_layernorm_2");
  layer.expert_scale = loader.vector({{block + "expert_scale", mixture.experts}});
  layer.router_norm = loader.vector({{block + "gate.scale", config.width}});
  for (float& one : layer.router_norm) one /= std::sqrt(static_cast<float>(config.width));
}

/// Where the norms of a layer are stored; empty: it has no such norm.
struct NormNames {
  const char *input = "input_layernorm", *attention_post = "", *mlp = "post_attention_layernorm", *mlp_post = "";
};

NormNames norm_names(const ModelConfig& config) {
  if (config.architecture == "Glm4ForCausalLM")
    return {.attention_post = "post_self_attn_layernorm", .mlp_post = "post_mlp_layernorm"};
  if (!config.post_norms) return {};
  return {.input = config.pre_norms ? "input_layernorm" : "",
          .attention_post = "post_attention_layernorm",
          .mlp = config.pre_norms ? "pre_feedforward_layernorm" : "",
          .mlp_post = "post_feedforward_layernorm"};
}

void load_norms(Loader& loader, const ModelConfig& config, LayerWeights& layer, std::int32_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const bool mixes = config.mixer(index) != LayerKind::none;
  const NormNames names = norm_names(config);
  for (const auto& [name, norm, there] : {std::tuple(names.input, &layer.input_norm, mixes),
                                          std::tuple(names.attention_post, &layer.attention_post_norm, mixes),
                                          std::tuple(names.mlp, &layer.mlp_norm, !config.single_parts || !mixes),
                                          std::tuple(names.mlp_post, &layer.mlp_post_norm, true)})
    if (there && *name != '\0') *norm = loader.norm(prefix + name + ".weight", config.width, config.norm_offset);
}

/// A part of which the tensor holds two, each in pieces of `piece` outputs that alternate; `which`: the first or the
/// second.
WeightPart alternate(WeightPart part, std::int64_t piece, std::int64_t which) {
  auto order = std::make_shared<std::vector<std::int64_t>>();
  for (std::int64_t i = 0; i < part.rows; ++i) order->push_back((2 * (i / piece) + which) * piece + i % piece);
  part.order = std::move(order);
  part.stored = 2 * part.rows;
  return part;
}

/// Reads the mixer of one layer.
class MixerReader {
 public:
  MixerReader(Loader& loader, const ModelConfig& config, std::int32_t layer)
      : loader_(loader),
        config_(config),
        layer_(layer),
        kind_(config.mixer(layer)),
        prefix_(fmt::format("model.layers.{}.", layer)) {}

  void read(LayerWeights& layer) {
    if (kind_ == LayerKind::attention || kind_ == LayerKind::parallel) read_attention(layer, prefix_ + "self_attn.");
    if (kind_ == LayerKind::attention || kind_ == LayerKind::none) return;
    layer.recurrent = std::make_unique<RecurrentWeights>();
    if (kind_ == LayerKind::short_convolution) return read_short_convolution(*layer.recurrent, prefix_ + "conv.");
    if (kind_ == LayerKind::delta_net) return read_delta_net(*layer.recurrent, prefix_ + "linear_attn.");
    read_mamba2(*layer.recurrent, prefix_ + "mamba.");
  }

 private:
  void read_attention(LayerWeights& layer, const std::string& prefix) {
    const std::int32_t head_dim = config_.head_dim_of(layer_);
    const std::int64_t q = std::int64_t{config_.heads} * head_dim,
                       kv = std::int64_t{config_.kv_heads_of(layer_)} * head_dim;
    const std::int64_t width = config_.width;
    const std::int32_t interleaved = config_.interleaved_heads ? head_dim : 0;
    const std::int32_t rotated = config_.rotated(RopeKind::global);
    // Phi-3 stores q, k, v already stacked, in the order used here.
    const bool fused = config_.architecture == "Phi3ForCausalLM", stores = config_.stores_kv(layer_);
    const auto qkv = [&](const std::string& kind) -> std::vector<WeightPart> {
      if (fused) return {{prefix + "qkv_proj" + kind, q + 2 * kv}};
      if (!stores) return {{prefix + "q_proj" + kind, q}};
      if (config_.keys_as_values(layer_)) return {{prefix + "q_proj" + kind, q}, {prefix + "k_proj" + kind, kv}};
      if (config_.attention_gate)
        return {alternate({prefix + "q_proj" + kind, q}, head_dim, 0),
                {prefix + "k_proj" + kind, kv},
                {prefix + "v_proj" + kind, kv},
                alternate({prefix + "q_proj" + kind, q}, head_dim, 1)};
      return {{prefix + "q_proj" + kind, q, interleaved, rotated},
              {prefix + "k_proj" + kind, kv, interleaved, rotated},
              {prefix + "v_proj" + kind, kv}};
    };
    layer.qkv = loader_.matrix(qkv(".weight"), width);
    if (config_.attention_bias) layer.qkv_bias = loader_.vector(qkv(".bias"));
    if (config_.qk_norm) {
      const bool rows = config_.qk_norm_of_row;
      layer.q_norm = loader_.norm(prefix + "q_norm.weight", rows ? q : head_dim, config_.norm_offset);
      if (stores) layer.k_norm = loader_.norm(prefix + "k_norm.weight", rows ? kv : head_dim, config_.norm_offset);
    }
    if (config_.norm_behind_rope) {  // the weights of both norms multiply queries: scores are the same
      for (std::size_t i = 0; i < layer.q_norm.size(); ++i) layer.q_norm[i] *= layer.k_norm[i];
      std::ranges::fill(layer.k_norm, 1.0f);
    }
    if (config_.value_norm && stores) layer.v_norm.assign(static_cast<std::size_t>(head_dim), 1.0f);
    if (config_.sinks) layer.sinks = loader_.vector({{prefix + "sinks", config_.heads}});
    layer.output = loader_.matrix({{prefix + "o_proj.weight", width}}, q);
    if (config_.output_bias) layer.output_bias = loader_.vector({{prefix + "o_proj.bias", width}});
  }

  void read_short_convolution(RecurrentWeights& weights, const std::string& prefix) {
    const std::int64_t width = config_.width;
    const RecurrentConfig& recurrent = config_.recurrent;
    weights.in = loader_.matrix({{prefix + "in_proj.weight", 3 * width}}, width);
    weights.taps = loader_.taps(prefix + "conv.weight", width, recurrent.conv_length);
    weights.out = loader_.matrix({{prefix + "out_proj.weight", width}}, width);
    if (recurrent.bias) {
      weights.in_bias = loader_.vector({{prefix + "in_proj.bias", 3 * width}});
      weights.out_bias = loader_.vector({{prefix + "out_proj.bias", width}});
    }
    if (recurrent.conv_bias) weights.conv_bias = loader_.vector({{prefix + "conv.bias", width}});
  }

  /// The rates at which states decay: checkpoints hold the logarithm of their negative.
  std::vector<float> rates(const std::string& prefix, std::int64_t heads) {
    if (loader_.has(prefix + "rate")) return loader_.vector({{prefix + "rate", heads}});
    std::vector<float> read = loader_.vector({{prefix + "A_log", heads}});
    for (float& rate : read) rate = -std::exp(rate);
    return read;
  }

  /// Queries, keys, values, gate, write and decay. Checkpoints of Qwen3-Next hold the first four key head by key head
  /// in one tensor, and the last two in another.
  std::vector<WeightPart> delta_projections(const DeltaShape& delta, const std::string& prefix) const {
    const std::int64_t heads = delta.key_heads, dk = delta.key_dim;
    const std::int64_t values = delta.value_cols() / heads, shared = delta.value_heads / heads;
    const auto piece = [&](const char* name, std::int64_t size, std::int64_t begin, std::int64_t of) {
      auto order = std::make_shared<std::vector<std::int64_t>>();
      for (std::int64_t i = 0; i < heads * size; ++i) order->push_back(i / size * of + begin + i % size);
      return WeightPart{prefix + name, heads * size, 0, 0, std::move(order), heads * of};
    };
    std::vector<WeightPart> parts;
    if (loader_.has(prefix + "in_proj_qkvz.weight")) {
      constexpr const char* kName = "in_proj_qkvz.weight";
      const std::int64_t of = 2 * dk + 2 * values;
      parts = {piece(kName, dk, 0, of), piece(kName, dk, dk, of), piece(kName, values, 2 * dk, of),
               piece(kName, values, 2 * dk + values, of)};
    } else {
      parts = {{prefix + "in_proj_qkv.weight", 2 * delta.key_cols() + delta.value_cols()},
               {prefix + "in_proj_z.weight", delta.value_cols()}};
    }
    if (loader_.has(prefix + "in_proj_ba.weight")) {
      parts.push_back(piece("in_proj_ba.weight", shared, 0, 2 * shared));
      parts.push_back(piece("in_proj_ba.weight", shared, shared, 2 * shared));
    } else {
      parts.push_back({prefix + "in_proj_b.weight", delta.value_heads});
      parts.push_back({prefix + "in_proj_a.weight", delta.value_heads});
    }
    return parts;
  }

  void read_delta_net(RecurrentWeights& weights, const std::string& prefix) {
    const DeltaShape& delta = config_.recurrent.delta;
    weights.in = loader_.matrix(delta_projections(delta, prefix), config_.width);
    weights.taps = loader_.taps(prefix + "conv1d.weight", 2 * delta.key_cols() + delta.value_cols(),
                                config_.recurrent.conv_length);
    weights.rate = rates(prefix, delta.value_heads);
    weights.step_bias = loader_.vector({{prefix + "dt_bias", delta.value_heads}});
    weights.norms = {loader_.norm(prefix + "norm.weight", delta.value_dim, 0.0f)};
    weights.out = loader_.matrix({{prefix + "out_proj.weight", config_.width}}, delta.value_cols());
  }

  void read_mamba2(RecurrentWeights& weights, const std::string& prefix) {
    const RecurrentConfig& recurrent = config_.recurrent;
    const ScanShape& scan = recurrent.scan;
    const std::int64_t columns = scan.cols() + 2 * scan.group_cols(), projected = scan.cols() + columns + scan.heads;
    weights.in = loader_.matrix({{prefix + "in_proj.weight", projected}}, config_.width);
    weights.taps = loader_.taps(prefix + "conv1d.weight", columns, recurrent.conv_length);
    if (recurrent.conv_bias) weights.conv_bias = loader_.vector({{prefix + "conv1d.bias", columns}});
    weights.rate = rates(prefix, scan.heads);
    weights.step_bias = loader_.vector({{prefix + "dt_bias", scan.heads}});
    weights.skip = loader_.vector({{prefix + "D", scan.heads}});
    if (recurrent.norm_groups > 0) {
      const std::vector<float> norm = loader_.vector({{prefix + "norm.weight", scan.cols()}});
      const auto width = static_cast<std::ptrdiff_t>(norm.size()) / recurrent.norm_groups;
      for (std::int32_t group = 0; group < recurrent.norm_groups; ++group)
        weights.norms.emplace_back(norm.begin() + group * width, norm.begin() + (group + 1) * width);
    }
    weights.out = loader_.matrix({{prefix + "out_proj.weight", config_.width}}, scan.cols());
    if (recurrent.bias) {
      weights.in_bias = loader_.vector({{prefix + "in_proj.bias", projected}});
      weights.out_bias = loader_.vector({{prefix + "out_proj.bias", config_.width}});
    }
  }

  Loader& loader_;
  const ModelConfig& config_;
  std::int32_t layer_;
  LayerKind kind_;
  std::string prefix_;
};

AltUpWeights load_altup(Loader& loader, const ModelConfig& config, const std::string& prefix) {
  const std::int64_t width = config.width, streams = config.altup.streams, rank = config.altup.laurel_rank;
  const std::string altup = prefix + "altup.", laurel = prefix + "laurel.";
  AltUpWeights weights;
  weights.router_norm = loader.norm(altup + "router_norm.weight", width, config.norm_offset);
  for (float& one : weights.router_norm) one /= static_cast<float>(width);
  weights.router = loader.matrix({{altup + "modality_router.weight", streams}}, width);
  weights.predict = loader.matrix({{altup + "prediction_coefs.weight", streams * streams}}, streams);
  weights.correct = loader.matrix({{altup + "correction_coefs.weight", streams}}, streams);
  weights.correct_bias.assign(static_cast<std::size_t>(streams), 1.0f);
  if (config.altup.scaled) weights.scale = loader.vector({{altup + "correct_output_scale", width}});
  if (rank == 0) return weights;
  weights.laurel_in = loader.matrix({{laurel + "linear_left.weight", rank}}, width);
  weights.laurel_out = loader.matrix({{laurel + "linear_right.weight", width}}, rank);
  weights.laurel_norm = loader.norm(laurel + "post_laurel_norm.weight", width, config.norm_offset);
  return weights;
}

LayerWeights load_layer(Loader& loader, const ModelConfig& config, std::int32_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  LayerWeights layer;
  load_norms(loader, config, layer, index);
  MixerReader(loader, config, index).read(layer);
  if (config.single_parts && config.mixer(index) != LayerKind::none) return layer;
  if (config.layer_scales) layer.scale = loader.vector({{prefix + "layer_scalar", 1}}).front();
  if (const std::int64_t width = config.token_input.width; width > 0)
    layer.token_input = std::make_unique<TokenInputWeights>(
        TokenInputWeights{loader.matrix({{prefix + "per_layer_input_gate.weight", width}}, config.width),
                          loader.matrix({{prefix + "per_layer_projection.weight", config.width}}, width),
                          loader.norm(prefix + "post_per_layer_input_norm.weight", config.width, config.norm_offset)});
  if (config.altup.streams > 1) layer.altup = std::make_unique<AltUpWeights>(load_altup(loader, config, prefix));
  if (config.mixture.in(index)) {
    load_mixture(loader, config, layer, prefix);
    if (!config.mixture.beside_mlp) return layer;
  }
  const GatedNames names = gated_names(loader, config, prefix + "mlp.");
  const std::int64_t ffn = config.ffn_width_of(index);
  layer.gate_up = loader.matrix(names.gate_up(".weight", ffn), config.width);
  if (config.mlp_bias) layer.gate_up_bias = loader.vector(names.gate_up(".bias", ffn));
  layer.down = loader.matrix(names.down(".weight", config.width), ffn);
  if (config.mlp_bias) layer.down_bias = loader.vector(names.down(".bias", config.width));
  return layer;
}

/// Reads the table of per-layer embeddings and what belongs to it.
void load_token_inputs(Loader& loader, const ModelConfig& config, Weights& weights) {
  const TokenInputConfig& inputs = config.token_input;
  const std::int64_t columns = std::int64_t{inputs.width} * config.layers;
  weights.token_table = loader.matrix({{"model.embed_tokens_per_layer.weight", inputs.rows}}, columns);
  weights.token_projection = loader.matrix({{"model.per_layer_model_projection.weight", columns}}, config.width);
  weights.token_norm = loader.norm("model.per_layer_projection_norm.weight", inputs.width, config.norm_offset);
}

/// Names of a family's checkpoints: each pair's first text becomes the second wherever it is in a name.
struct CheckpointNames {
  std::string_view architecture;
  std::span<const std::pair<std::string_view, std::string_view>> changes;
};
constexpr std::pair<std::string_view, std::string_view> kLfm2Names[] = {
    {"model.norm", "model.embedding_norm"},
    {"input_layernorm", "operator_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"o_proj", "out_proj"},
    {"q_norm", "q_layernorm"},
    {"k_norm", "k_layernorm"},
    {"mlp.", "feed_forward."},
    {"gate_proj", "w1"},
    {"up_proj", "w3"},
    {"down_proj", "w2"},
};
constexpr std::pair<std::string_view, std::string_view> kGraniteHybridNames[] = {
    {"mlp.gate.", "block_sparse_moe.router.layer."},
    {"mlp.shared_expert.", "mlp."},
    {"mlp.gate_up_proj", "shared_mlp.input_linear"},
    {"mlp.down_proj", "shared_mlp.output_linear"},
    {"mlp.experts.", "block_sparse_moe.experts."}};
constexpr std::pair<std::string_view, std::string_view> kNemotronNames[] = {
    {"model.embed_tokens", "backbone.embeddings"},
    {"model.norm", "backbone.norm_f"},
    {"model.layers.", "backbone.layers."},
    {"input_layernorm", "norm"},
    {"post_attention_layernorm", "norm"},
    {"self_attn.", "mixer."},
    {"mamba.", "mixer."},
    {"mlp.expert_bias", "mixer.gate.e_score_correction_bias"},
    {"mlp.shared_expert.", "mixer.shared_experts."},
    {"mlp.latent_in", "mixer.fc1_latent_proj"},
    {"mlp.latent_out", "mixer.fc2_latent_proj"},
    {"mlp.", "mixer."},
};
constexpr std::pair<std::string_view, std::string_view> kFalconNames[] = {
    {"model.norm", "model.final_layernorm"},
    {"post_attention_layernorm", "pre_ff_layernorm"},
    {"mlp.", "feed_forward."},
};
constexpr std::pair<std::string_view, std::string_view> kHunYuanNames[] = {{"q_norm", "query_layernorm"},
                                                                           {"k_norm", "key_layernorm"}};
constexpr std::pair<std::string_view, std::string_view> kGemma4Names[] = {
    {"mlp.experts.", "experts."},
    {"mlp.expert_scale", "router.per_expert_scale"},
    {"mlp.gate.scale", "router.scale"},
    {"mlp.gate.", "router.proj."},
};
constexpr CheckpointNames kCheckpointNames[] = {
    {"Lfm2ForCausalLM", kLfm2Names},
    {"Lfm2MoeForCausalLM", kLfm2Names},
    {"GraniteMoeHybridForCausalLM", kGraniteHybridNames},
    {"NemotronHForCausalLM", kNemotronNames},
    {"FalconH1ForCausalLM", kFalconNames},
    {"HunYuanDenseV1ForCausalLM", kHunYuanNames},
    {"Gemma4ForCausalLM", kGemma4Names},
};

std::string name_in_checkpoint(std::string name, const std::string& architecture) {
  const auto* found = std::ranges::find(kCheckpointNames, architecture, &CheckpointNames::architecture);
  if (found == std::end(kCheckpointNames)) return name;
  for (const auto& [ours, theirs] : found->changes)
    if (const std::size_t at = name.find(ours); at != name.npos) name.replace(at, ours.size(), theirs);
  return name;
}

/// The tensors that may hold the matrices of all experts, for the name of one: "block.experts.3.gate_up_proj.weight".
struct ExpertPlace {
  std::vector<std::string> stacks;
  std::int64_t expert = -1;
};

ExpertPlace expert_place(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = name.find(kExperts);
  if (at == name.npos) return {};
  const std::size_t begin = at + kExperts.size(), end = name.find('.', begin);
  const std::string block = name.substr(0, at + 1), rest = name.substr(end + 1);
  const std::int64_t expert = std::stoll(name.substr(begin, end - begin));
  if (rest == "gate_up_proj.weight") return {{block + "input_linear.weight", block + "experts.gate_up_proj"}, expert};
  if (rest == "down_proj.weight") return {{block + "output_linear.weight", block + "experts.down_proj"}, expert};
  return {};
}

}  // namespace

/// The tensor of all experts in which the matrix is; empty: it has a tensor of its own.
std::string RenamedWeights::stack_of(const std::string& theirs) const {
  if (config_.mixture.biases || files_.contains(theirs)) return "";  // with biases, CheckpointWeights finds the part
  for (const std::string& stack : expert_place(theirs).stacks)
    if (files_.contains(stack)) return stack;
  return "";
}

bool RenamedWeights::contains(const std::string& name) const {
  const std::string theirs = name_in_checkpoint(name, config_.architecture);
  return !stack_of(theirs).empty() || files_.contains(theirs);
}

StoredWeight RenamedWeights::weight(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const std::string theirs = name_in_checkpoint(name, config_.architecture);
  const std::string stack = stack_of(theirs);
  return stack.empty() ? files_.weight(theirs, rows, cols) : expert(stack, expert_place(theirs).expert, rows, cols);
}

StoredWeight RenamedWeights::expert(const std::string& stack, std::int64_t expert, std::int64_t rows,
                                    std::int64_t cols) const {
  if (stack_ != stack) {
    whole_ = files_.weight(stack, config_.mixture.experts, rows * cols).whole();
    stack_ = stack;
  }
  const std::int64_t bytes = row_bytes(whole_.type, rows * cols);
  return {{whole_.data, whole_.data.get() + expert * bytes}, whole_.type, rows, cols};
}

void Weights::keep_vectors(Device& device) {
  kept.clear();
  for (const LayerWeights& layer : layers) {
    for (const auto* vector : {&layer.input_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm, &layer.v_norm,
                               &layer.sinks, &layer.output_bias, &layer.attention_post_norm, &layer.mlp_norm,
                               &layer.gate_up_bias, &layer.down_bias, &layer.mlp_post_norm, &layer.router_bias,
                               &layer.router_norm, &layer.experts_norm, &layer.experts_post_norm, &layer.mlp_own_norm})
      kept.push_back(device.keep(*vector));
    if (layer.token_input) kept.push_back(device.keep(layer.token_input->norm));
    if (layer.altup) {
      const AltUpWeights& altup = *layer.altup;
      for (const auto* vector : {&altup.router_norm, &altup.correct_bias, &altup.scale, &altup.laurel_norm})
        kept.push_back(device.keep(*vector));
    }
    for (const ExpertWeights& expert : layer.experts)
      for (const auto* vector : {&expert.gate_up_bias, &expert.down_bias}) kept.push_back(device.keep(*vector));
    if (layer.recurrent == nullptr) continue;
    const RecurrentWeights& recurrent = *layer.recurrent;
    for (const auto* vector : {&recurrent.in_bias, &recurrent.taps, &recurrent.conv_bias, &recurrent.rate,
                               &recurrent.step_bias, &recurrent.skip, &recurrent.out_bias})
      kept.push_back(device.keep(*vector));
    for (const std::vector<float>& norm : recurrent.norms) kept.push_back(device.keep(norm));
  }
  kept.push_back(device.keep(final_norm));
  if (!token_norm.empty()) kept.push_back(device.keep(token_norm));
}

Weights load_weights(Backend& backend, const ModelConfig& config, const WeightSource& files, DType dtype,
                     const LoadProgress& progress, DType activations) {
  if (dtype == DType::f16) throw std::invalid_argument("load_weights: matrices are kept in bf16 or f32, not f16");
  if (progress) progress(0.0);
  Loader loader(backend, files, dtype, activations, progress);
  Weights weights;
  // The largest matrices come first: while one is loaded, the file's form of it is in memory too.
  weights.embedding = loader.matrix({{"model.embed_tokens.weight", config.vocabulary}}, config.width);
  // As in Transformers, a tied model ignores an lm_head that the file has all the same.
  const bool tied = config.tied_embeddings || !loader.has("lm_head.weight");
  weights.lm_head = tied ? weights.embedding : loader.matrix({{"lm_head.weight", config.vocabulary}}, config.width);
  if (config.token_input.width > 0) load_token_inputs(loader, config, weights);
  for (std::int32_t stream = 1; stream < config.altup.streams; ++stream) {
    const auto projection = [&](const char* kind) {
      return loader.matrix({{fmt::format("model.{}.{}.weight", kind, stream - 1), config.width}}, config.width);
    };
    weights.stream_in.push_back(projection("altup_projections"));
    weights.stream_out.push_back(projection("altup_unembed_projections"));
  }
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    weights.layers.push_back(load_layer(loader, config, layer));
  weights.final_norm = loader.norm("model.norm.weight", config.width, config.norm_offset);
  weights.bytes = loader.bytes();
  weights.keep_vectors(backend);
  if (progress) progress(1.0);
  return weights;
}

}  // namespace baton
