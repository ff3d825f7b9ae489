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
      const StoredWeight found = read(weight(part, 1, length));
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
    if (part.order) {
      const bool vector = rows == 1;
      StoredWeight some = files_.weight(part.name, vector ? 1 : part.stored, cols).whole();
      some.order = part.order;
      some.rows = rows;
      return some;
    }
    StoredWeight found = files_.weight(part.name, rows, cols);
    if (found.interleaved == 0) {
      found.interleaved = part.interleaved;
      found.rotated = part.rotated;
    }
    return found;
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

bool is_lfm2(const ModelConfig& config) {
  return config.architecture == "Lfm2ForCausalLM" || config.architecture == "Lfm2MoeForCausalLM";
}

/// A gated MLP below `block`, whose gate and up are one tensor in some families.
struct GatedNames {
  std::string block;
  bool fused = false;
  const char *gate = "gate_proj", *up = "up_proj", *down_name = "down_proj";

  std::vector<WeightPart> gate_up(const char* kind, std::int64_t ffn) const {
    if (fused) return {{block + "gate_up_proj" + kind, 2 * ffn}};
    return {{block + gate + kind, ffn}, {block + up + kind, ffn}};
  }
  std::vector<WeightPart> down(const char* kind, std::int64_t width) const {
    return {{block + down_name + kind, width}};
  }
};

void load_mixture(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  const std::int64_t width = config.width, ffn = config.mixture.ffn_width;
  const bool lfm2 = is_lfm2(config), mixtral = config.architecture == "MixtralForCausalLM" || lfm2;
  const std::string block = prefix + (lfm2 ? "feed_forward." : mixtral ? "block_sparse_moe." : "mlp.");
  layer.router = loader.matrix({{block + "gate.weight", config.mixture.experts}}, width);
  if (config.mixture.choice_bias) layer.choice_bias = loader.vector({{block + "expert_bias", config.mixture.experts}});
  for (std::int32_t expert = 0; expert < config.mixture.experts; ++expert) {
    const auto part = [&](const char* in_mixtral, const char* name) {
      return fmt::format("{}experts.{}.{}.weight", block, expert, mixtral ? in_mixtral : name);
    };
    layer.experts.push_back({loader.matrix({{part("w1", "gate_proj"), ffn}, {part("w3", "up_proj"), ffn}}, width),
                             loader.matrix({{part("w2", "down_proj"), width}}, ffn)});
  }
  if (const std::int64_t shared = config.mixture.shared_width; shared > 0) {
    const GatedNames names{block + "shared_expert."};
    layer.shared = {loader.matrix(names.gate_up(".weight", shared), width),
                    loader.matrix(names.down(".weight", width), shared)};
    layer.shared_gate = loader.matrix({{block + "shared_expert_gate.weight", 1}}, width);
  }
}

/// Where the norms of a layer are stored; empty: it has no such norm.
struct NormNames {
  const char *input = "input_layernorm", *attention_post = "", *mlp = "post_attention_layernorm", *mlp_post = "";
};

NormNames norm_names(const ModelConfig& config) {
  if (is_lfm2(config)) return {.input = "operator_norm", .mlp = "ffn_norm"};
  if (config.architecture == "Glm4ForCausalLM")
    return {.attention_post = "post_self_attn_layernorm", .mlp_post = "post_mlp_layernorm"};
  if (!config.post_norms) return {};
  return {.input = config.pre_norms ? "input_layernorm" : "",
          .attention_post = "post_attention_layernorm",
          .mlp = config.pre_norms ? "pre_feedforward_layernorm" : "",
          .mlp_post = "post_feedforward_layernorm"};
}

void load_norms(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  const NormNames names = norm_names(config);
  for (const auto& [name, norm] :
       {std::pair(names.input, &layer.input_norm), std::pair(names.attention_post, &layer.attention_post_norm),
        std::pair(names.mlp, &layer.mlp_norm), std::pair(names.mlp_post, &layer.mlp_post_norm)})
    if (*name != '\0') *norm = loader.norm(prefix + name + ".weight", config.width, config.norm_offset);
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

void load_attention(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim,
                     kv = std::int64_t{config.kv_heads} * config.head_dim;
  const std::int64_t width = config.width;
  const std::int32_t interleaved = config.interleaved_heads ? config.head_dim : 0;
  const std::int32_t rotated = config.rotated(RopeKind::global);
  // Phi-3 stores q, k, v already stacked, in the order used here.
  const bool fused = config.architecture == "Phi3ForCausalLM", lfm2 = is_lfm2(config);
  const auto qkv = [&](const std::string& kind) -> std::vector<WeightPart> {
    if (fused) return {{prefix + "qkv_proj" + kind, q + 2 * kv}};
    if (config.attention_gate)
      return {alternate({prefix + "q_proj" + kind, q}, config.head_dim, 0),
              {prefix + "k_proj" + kind, kv},
              {prefix + "v_proj" + kind, kv},
              alternate({prefix + "q_proj" + kind, q}, config.head_dim, 1)};
    return {{prefix + "q_proj" + kind, q, interleaved, rotated},
            {prefix + "k_proj" + kind, kv, interleaved, rotated},
            {prefix + "v_proj" + kind, kv}};
  };
  layer.qkv = loader.matrix(qkv(".weight"), width);
  if (config.attention_bias) layer.qkv_bias = loader.vector(qkv(".bias"));
  if (config.qk_norm) {
    const bool rows = config.qk_norm_of_row;
    const char* norm = lfm2 ? "_layernorm.weight" : "_norm.weight";
    layer.q_norm = loader.norm(prefix + "q" + norm, rows ? q : config.head_dim, config.norm_offset);
    layer.k_norm = loader.norm(prefix + "k" + norm, rows ? kv : config.head_dim, config.norm_offset);
  }
  layer.output = loader.matrix({{prefix + (lfm2 ? "out_proj.weight" : "o_proj.weight"), width}}, q);
  if (config.output_bias) layer.output_bias = loader.vector({{prefix + "o_proj.bias", width}});
}

std::unique_ptr<RecurrentWeights> load_short_convolution(Loader& loader, const ModelConfig& config,
                                                         const std::string& prefix) {
  const std::int64_t width = config.width;
  const RecurrentConfig& recurrent = config.recurrent;
  auto weights = std::make_unique<RecurrentWeights>();
  weights->in = loader.matrix({{prefix + "in_proj.weight", 3 * width}}, width);
  weights->taps = loader.taps(prefix + "conv.weight", width, recurrent.conv_length);
  weights->out = loader.matrix({{prefix + "out_proj.weight", width}}, width);
  if (recurrent.bias) {
    weights->in_bias = loader.vector({{prefix + "in_proj.bias", 3 * width}});
    weights->out_bias = loader.vector({{prefix + "out_proj.bias", width}});
  }
  if (recurrent.conv_bias) weights->conv_bias = loader.vector({{prefix + "conv.bias", width}});
  return weights;
}

/// The rates at which states decay: checkpoints hold the logarithm of their negative.
std::vector<float> load_rates(Loader& loader, const std::string& prefix, std::int64_t heads) {
  if (loader.has(prefix + "rate")) return loader.vector({{prefix + "rate", heads}});
  std::vector<float> rates = loader.vector({{prefix + "A_log", heads}});
  for (float& rate : rates) rate = -std::exp(rate);
  return rates;
}

/// Queries, keys, values, gate, write and decay. Checkpoints of Qwen3-Next hold the first four key head by key head in
/// one tensor, and the last two in another.
std::vector<WeightPart> delta_projections(const Loader& loader, const DeltaShape& delta, const std::string& prefix) {
  const std::int64_t heads = delta.key_heads, dk = delta.key_dim;
  const std::int64_t values = delta.value_cols() / heads, shared = delta.value_heads / heads;
  const auto piece = [&](const char* name, std::int64_t size, std::int64_t begin, std::int64_t of) {
    auto order = std::make_shared<std::vector<std::int64_t>>();
    for (std::int64_t i = 0; i < heads * size; ++i) order->push_back(i / size * of + begin + i % size);
    return WeightPart{prefix + name, heads * size, 0, 0, std::move(order), heads * of};
  };
  std::vector<WeightPart> parts;
  if (loader.has(prefix + "in_proj_qkvz.weight")) {
    constexpr const char* kName = "in_proj_qkvz.weight";
    const std::int64_t of = 2 * dk + 2 * values;
    parts = {piece(kName, dk, 0, of), piece(kName, dk, dk, of), piece(kName, values, 2 * dk, of),
             piece(kName, values, 2 * dk + values, of)};
  } else {
    parts = {{prefix + "in_proj_qkv.weight", 2 * delta.key_cols() + delta.value_cols()},
             {prefix + "in_proj_z.weight", delta.value_cols()}};
  }
  if (loader.has(prefix + "in_proj_ba.weight")) {
    parts.push_back(piece("in_proj_ba.weight", shared, 0, 2 * shared));
    parts.push_back(piece("in_proj_ba.weight", shared, shared, 2 * shared));
  } else {
    parts.push_back({prefix + "in_proj_b.weight", delta.value_heads});
    parts.push_back({prefix + "in_proj_a.weight", delta.value_heads});
  }
  return parts;
}

std::unique_ptr<RecurrentWeights> load_delta_net(Loader& loader, const ModelConfig& config, const std::string& prefix) {
  const DeltaShape& delta = config.recurrent.delta;
  auto weights = std::make_unique<RecurrentWeights>();
  weights->in = loader.matrix(delta_projections(loader, delta, prefix), config.width);
  weights->taps =
      loader.taps(prefix + "conv1d.weight", 2 * delta.key_cols() + delta.value_cols(), config.recurrent.conv_length);
  weights->rate = load_rates(loader, prefix, delta.value_heads);
  weights->step_bias = loader.vector({{prefix + "dt_bias", delta.value_heads}});
  weights->norms = {loader.norm(prefix + "norm.weight", delta.value_dim, 0.0f)};
  weights->out = loader.matrix({{prefix + "out_proj.weight", config.width}}, delta.value_cols());
  return weights;
}

void load_mixer(Loader& loader, const ModelConfig& config, LayerWeights& layer, std::int32_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  switch (config.mixer(index)) {
    case LayerKind::attention:
      return load_attention(loader, config, layer, prefix + "self_attn.");
    case LayerKind::short_convolution:
      layer.recurrent = load_short_convolution(loader, config, prefix + "conv.");
      return;
    case LayerKind::delta_net:
      layer.recurrent = load_delta_net(loader, config, prefix + "linear_attn.");
      return;
    default:
      return;
  }
}

LayerWeights load_layer(Loader& loader, const ModelConfig& config, std::int32_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  LayerWeights layer;
  load_norms(loader, config, layer, prefix);
  load_mixer(loader, config, layer, index);
  if (config.mixture.in(index)) {
    load_mixture(loader, config, layer, prefix);
    return layer;
  }
  const bool fused = config.architecture == "Phi3ForCausalLM" || config.architecture == "Glm4ForCausalLM";
  const GatedNames names = is_lfm2(config) ? GatedNames{prefix + "feed_forward.", false, "w1", "w3", "w2"}
                                           : GatedNames{prefix + "mlp.", fused};
  layer.gate_up = loader.matrix(names.gate_up(".weight", config.ffn_width), config.width);
  if (config.mlp_bias) layer.gate_up_bias = loader.vector(names.gate_up(".bias", config.ffn_width));
  layer.down = loader.matrix(names.down(".weight", config.width), config.ffn_width);
  if (config.mlp_bias) layer.down_bias = loader.vector(names.down(".bias", config.width));
  return layer;
}

}  // namespace

void Weights::keep_vectors(Device& device) {
  kept.clear();
  for (const LayerWeights& layer : layers) {
    for (const auto* vector :
         {&layer.input_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm, &layer.output_bias,
          &layer.attention_post_norm, &layer.mlp_norm, &layer.gate_up_bias, &layer.down_bias, &layer.mlp_post_norm})
      kept.push_back(device.keep(*vector));
    if (layer.recurrent == nullptr) continue;
    const RecurrentWeights& recurrent = *layer.recurrent;
    for (const auto* vector : {&recurrent.in_bias, &recurrent.taps, &recurrent.conv_bias, &recurrent.rate,
                               &recurrent.step_bias, &recurrent.skip, &recurrent.out_bias})
      kept.push_back(device.keep(*vector));
    for (const std::vector<float>& norm : recurrent.norms) kept.push_back(device.keep(norm));
  }
  kept.push_back(device.keep(final_norm));
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
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    weights.layers.push_back(load_layer(loader, config, layer));
  const char* final_norm = is_lfm2(config) ? "model.embedding_norm.weight" : "model.norm.weight";
  weights.final_norm = loader.norm(final_norm, config.width, config.norm_offset);
  weights.bytes = loader.bytes();
  weights.keep_vectors(backend);
  if (progress) progress(1.0);
  return weights;
}

}  // namespace baton
