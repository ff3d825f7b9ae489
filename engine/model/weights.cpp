// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
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
  return weight.interleaved == 0 ? type : std::nullopt;
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
      const StoredWeight found = read(weight(part, 1, part.rows));
      std::vector<float> stored(static_cast<std::size_t>(part.rows));
      dequantize(stored, found.row(0), found.type);
      check_finite(view_of(stored.data(), 1, part.rows), part.name, true);
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

  bool has(const std::string& name) const { return files_.contains(name); }
  std::size_t bytes() const { return bytes_; }

 private:
  StoredWeight weight(const WeightPart& part, std::int64_t rows, std::int64_t cols) const {
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

/// A gated MLP below `block`, whose gate and up are one tensor in some families.
struct GatedNames {
  std::string block;
  bool fused = false;

  std::vector<WeightPart> gate_up(const char* kind, std::int64_t ffn) const {
    if (fused) return {{block + "gate_up_proj" + kind, 2 * ffn}};
    return {{block + "gate_proj" + kind, ffn}, {block + "up_proj" + kind, ffn}};
  }
  std::vector<WeightPart> down(const char* kind, std::int64_t width) const {
    return {{block + "down_proj" + kind, width}};
  }
};

void load_mixture(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  const std::int64_t width = config.width, ffn = config.mixture.ffn_width;
  const bool mixtral = config.architecture == "MixtralForCausalLM";
  const std::string block = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
  layer.router = loader.matrix({{block + "gate.weight", config.mixture.experts}}, width);
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

void load_attention(Loader& loader, const ModelConfig& config, LayerWeights& layer, const std::string& prefix) {
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim,
                     kv = std::int64_t{config.kv_heads} * config.head_dim;
  const std::int64_t width = config.width;
  const std::int32_t interleaved = config.interleaved_heads ? config.head_dim : 0;
  const std::int32_t rotated = config.rotated(RopeKind::global);
  // Phi-3 stores q, k, v already stacked, in the order used here.
  const bool fused = config.architecture == "Phi3ForCausalLM";
  const auto qkv = [&](const std::string& kind) -> std::vector<WeightPart> {
    if (fused) return {{prefix + "qkv_proj" + kind, q + 2 * kv}};
    return {{prefix + "q_proj" + kind, q, interleaved, rotated},
            {prefix + "k_proj" + kind, kv, interleaved, rotated},
            {prefix + "v_proj" + kind, kv}};
  };
  layer.qkv = loader.matrix(qkv(".weight"), width);
  if (config.attention_bias) layer.qkv_bias = loader.vector(qkv(".bias"));
  if (config.qk_norm) {
    const bool rows = config.qk_norm_of_row;
    layer.q_norm = loader.norm(prefix + "q_norm.weight", rows ? q : config.head_dim, config.norm_offset);
    layer.k_norm = loader.norm(prefix + "k_norm.weight", rows ? kv : config.head_dim, config.norm_offset);
  }
  layer.output = loader.matrix({{prefix + "o_proj.weight", width}}, q);
  if (config.output_bias) layer.output_bias = loader.vector({{prefix + "o_proj.bias", width}});
}

LayerWeights load_layer(Loader& loader, const ModelConfig& config, std::int32_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  LayerWeights layer;
  load_norms(loader, config, layer, prefix);
  load_attention(loader, config, layer, prefix + "self_attn.");
  if (config.mixture.in(index)) {
    load_mixture(loader, config, layer, prefix);
    return layer;
  }
  const bool fused = config.architecture == "Phi3ForCausalLM" || config.architecture == "Glm4ForCausalLM";
  const GatedNames names{prefix + "mlp.", fused};
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
  weights.final_norm = loader.norm("model.norm.weight", config.width, config.norm_offset);
  weights.bytes = loader.bytes();
  weights.keep_vectors(backend);
  if (progress) progress(1.0);
  return weights;
}

}  // namespace baton
