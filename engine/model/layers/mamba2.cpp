// SPDX-License-Identifier: Apache-2.0
// Mamba2 (arXiv 2405.21060), of Granite 4, Falcon-H1 and Nemotron-H: x, B and C go through a short convolution; each
// head then runs the selective scan. The result is multiplied by the silu of a gate and normalised group by group.
// RecurrentWeights::in is [gate, x, B, C, step]. Falcon-H1's mixer is attention alongside Mamba2.
#include <array>

#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class Mamba2Layer final : public Layer {
 public:
  explicit Mamba2Layer(const LayerContext& context)
      : context_(context),
        config_(context.model.config.recurrent),
        shape_(config_.scan),
        offsets_(state_offsets(context.model.config)) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    projected_ = memory.take(rows, projected_cols());
    convolved_ = memory.take(rows, conv_cols());
    mixed_ = memory.take(rows, shape_.cols());
  }

  void run(StepRows& /*step*/, std::int32_t layer, ConstTensorView normed) override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    Backend& backend = context_.backend;
    const TensorView projected = projected_.view(DType::f32, normed.rows, projected_cols());
    const TensorView convolved = convolved_.view(DType::f32, normed.rows, conv_cols());
    const TensorView mixed = mixed_.view(DType::f32, normed.rows, shape_.cols());
    const std::int64_t conv = shape_.cols(), step = conv + conv_cols();
    const std::int64_t offset = offsets_[static_cast<std::size_t>(layer)];
    backend.matmul(projected, normed, *w.in, w.in_bias);
    scale_parts(projected);
    backend.recurrence().convolve(convolved, projected.col_range(conv, step),
                                  {w.taps, w.conv_bias, config_.conv_length, true}, context_.states.at(offset));
    backend.recurrence().scan(mixed, {convolved, projected.col_range(step, projected_cols())}, shape_,
                              {w.rate, w.step_bias, w.skip, config_.least_step, config_.most_step},
                              context_.states.at(offset + conv_state_floats(conv_cols(), config_.conv_length)));
    normalize(mixed, projected.col_range(0, conv), w);
    backend.matmul(context_.rows.delta(), mixed, *w.out, w.out_bias);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    run(projected_, DType::f32, context_.rows.normed(), *w.in, w.in_bias);
    run(context_.rows.delta_buffer(), DType::f32, mixed_, *w.out, w.out_bias);
  }

 private:
  std::int64_t conv_cols() const { return shape_.cols() + 2 * shape_.group_cols(); }
  std::int64_t projected_cols() const { return shape_.cols() + conv_cols() + shape_.heads; }

  /// Multiplies each part of the projections as the model says.
  void scale_parts(TensorView projected) const {
    const std::int64_t conv = shape_.cols(), groups = shape_.group_cols(), step = conv + conv_cols();
    const std::array<std::int64_t, 6> ends = {0, conv, 2 * conv, 2 * conv + groups, step, projected_cols()};
    for (std::size_t i = 0; i < config_.multipliers.size(); ++i)
      context_.backend.scale(projected.col_range(ends[i], ends[i + 1]), config_.multipliers[i]);
  }

  /// Multiplies the result by the silu of its gate, before or behind the norm.
  void normalize(TensorView mixed, ConstTensorView gate, const RecurrentWeights& w) const {
    if (!config_.gate_behind_norm) context_.backend.multiply(mixed, gate, GateFunction::silu);
    for (std::size_t group = 0; group < w.norms.size(); ++group) {
      const auto width = static_cast<std::int64_t>(w.norms[group].size());
      const auto begin = static_cast<std::int64_t>(group) * width;
      const TensorView columns = mixed.col_range(begin, begin + width);
      context_.backend.rms_norm(columns, columns, w.norms[group], context_.model.config.norm_eps);
    }
    if (config_.gate_behind_norm) context_.backend.multiply(mixed, gate, GateFunction::silu);
  }

  LayerContext context_;
  const RecurrentConfig& config_;
  const ScanShape shape_;
  std::vector<std::int64_t> offsets_;  // [L + 1]
  Area projected_;                     // [T, projected_cols()]
  Area convolved_;                     // [T, conv_cols()]
  Area mixed_;                         // [T, cols]
};

/// Attention and Mamba2 over the same input, whose results are scaled and added.
class ParallelLayer final : public Layer {
 public:
  explicit ParallelLayer(const LayerContext& context)
      : context_(context), attention_(kAttentionLayers.make(context)), mamba_(kMamba2Layers.make(context)) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    attention_->allocate(memory, rows);
    mamba_->allocate(memory, rows);
    mixed_ = memory.take(rows, context_.model.config.width);
  }
  void prepare(const StepRows& step) override { attention_->prepare(step); }

  void run(StepRows& step, std::int32_t layer, ConstTensorView normed) override {
    Backend& backend = context_.backend;
    const ModelConfig& config = context_.model.config;
    const TensorView delta = context_.rows.delta(), mixed = mixed_.view(DType::f32, delta.rows, delta.cols);
    mamba_->run(step, layer, normed);
    backend.clear(mixed.data, static_cast<std::size_t>(delta.rows * delta.cols) * sizeof(float));
    backend.add(mixed, delta);
    if (config.recurrent.out_multiplier != 1.0f) backend.scale(mixed, config.recurrent.out_multiplier);
    attention_->run(step, layer, normed);
    if (config.attention_multiplier != 1.0f) backend.scale(delta, config.attention_multiplier);
    backend.add(delta, mixed);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    attention_->rehearse(layer, run);
    mamba_->rehearse(layer, run);
  }

 private:
  LayerContext context_;
  std::unique_ptr<Layer> attention_, mamba_;
  Area mixed_;  // [T, C] the result of Mamba2
};

}  // namespace

const LayerKindRow kMamba2Layers = {
    LayerKind::mamba2, "Mamba2",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<Mamba2Layer>(context); }};

const LayerKindRow kParallelLayers = {
    LayerKind::parallel, "attention and Mamba2",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<ParallelLayer>(context); }};

}  // namespace baton
