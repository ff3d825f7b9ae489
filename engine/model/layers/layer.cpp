// SPDX-License-Identifier: Apache-2.0
#include "engine/model/layers/layer.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// Rows of a feed-forward part on the CPU: [T, 2F] and [T, F] are the largest activations, and products of more rows are
// no faster.
constexpr std::int64_t kGateRows = 256;

}  // namespace

const std::array<const LayerKindRow*, kLayerKinds>& layer_kinds() {
  static const std::array<const LayerKindRow*, kLayerKinds> kKinds = {
      nullptr,          &kAttentionLayers,   &kShortConvolutionLayers, &kDeltaNetLayers,      &kMamba2Layers,
      &kParallelLayers, &kFeedForwardLayers, &kExpertsLayers,          &kMlpAndExpertsLayers, &kTokenInputLayers};
  return kKinds;
}

std::vector<LayerEntry> layer_list(const ModelConfig& config) {
  std::vector<LayerEntry> layers(static_cast<std::size_t>(config.layers));
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    LayerEntry& entry = layers[static_cast<std::size_t>(layer)];
    entry.mixer = config.mixer(layer);
    if (config.mixture.in(layer))
      entry.feed = config.mixture.beside_mlp ? LayerKind::mlp_and_experts : LayerKind::experts;
    if (config.token_input.width > 0) entry.last = LayerKind::token_input;
    if (config.single_parts && entry.mixer != LayerKind::none) entry.feed = LayerKind::none;
  }
  return layers;
}

std::vector<std::int64_t> state_offsets(const ModelConfig& config) {
  constexpr std::int64_t kAligned = 16;  // floats: a cache line
  const RecurrentConfig& c = config.recurrent;
  const auto floats = [&](LayerKind kind) -> std::int64_t {
    switch (kind) {
      case LayerKind::short_convolution:
        return conv_state_floats(config.width, c.conv_length);
      case LayerKind::delta_net:
        return conv_state_floats(2 * c.delta.key_cols() + c.delta.value_cols(), c.conv_length) + c.delta.state_floats();
      case LayerKind::parallel:
      case LayerKind::mamba2:
        return conv_state_floats(c.scan.cols() + 2 * c.scan.group_cols(), c.conv_length) + c.scan.state_floats();
      default:
        return 0;
    }
  };
  std::vector<std::int64_t> offsets = {0};
  for (const LayerEntry& layer : layer_list(config))
    offsets.push_back((offsets.back() + floats(layer.mixer) + kAligned - 1) / kAligned * kAligned);
  return offsets;
}

Area PartMemory::take(std::int64_t rows, std::int64_t cols) {
  constexpr std::size_t kAligned = 256;  // bytes
  const Area area(memory_, taken_);
  taken_ += (static_cast<std::size_t>(rows * cols) * sizeof(float) + kAligned - 1) / kAligned * kAligned;
  most_ = std::max(most_, taken_);
  return area;
}

void PartMemory::provide() {
  const std::size_t bytes = std::exchange(most_, 0);
  memory_ = {};  // never both
  memory_ = device_.allocate(bytes);
}

void Gates::allocate(PartMemory& memory, std::int64_t rows) {
  std::int64_t ffn = std::max({config_.ffn_width, config_.mixture.ffn_width, config_.mixture.shared_width});
  for (const std::int32_t own : config_.shapes.ffn_width) ffn = std::max<std::int64_t>(ffn, own);
  max_rows_ = on_host_ && config_.mixture.experts == 0 ? std::min(rows, kGateRows) : rows;
  gate_up_ = memory.take(max_rows_, 2 * ffn);
  hidden_ = memory.take(on_host_ ? 0 : rows, ffn);
}

DType Gates::type(const Matrix& gate_up, std::span<const float> bias) const {
  const bool plain = !bias.empty() || config_.gate_multiplier != 1.0f || !config_.shapes.gate_deviations.empty() ||
                     config_.activation == GateActivation::relu_squared;
  return plain ? DType::f32 : backend_.gate_type(gate_up.dtype);
}

TensorView Gates::gate_up(const Matrix& weight, std::span<const float> bias, std::int64_t rows) const {
  return gate_up_.view(type(weight, bias), rows, weight.rows);
}

TensorView Gates::gated(TensorView gate_up, const Matrix& down) {
  const std::int64_t ffn = gate_up.cols / 2;
  if (config_.gate_multiplier != 1.0f) backend_.scale(gate_up.col_range(0, ffn), config_.gate_multiplier);
  if (config_.activation == GateActivation::relu_squared) {
    backend_.multiply(gate_up, gate_up, GateFunction::relu);
    return gate_up;
  }
  const TensorView hidden =
      on_host_ ? gate_up.col_range(0, ffn) : hidden_.view(backend_.operand_type(down.dtype), gate_up.rows, ffn);
  if (config_.activation == GateActivation::silu) {
    backend_.silu_mul(hidden, gate_up, {config_.gate_limit, config_.gate_slope});
  } else {
    backend_.gelu_mul(hidden, gate_up);
  }
  return hidden;
}

}  // namespace baton
