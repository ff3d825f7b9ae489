// SPDX-License-Identifier: Apache-2.0
// Falcon-H1's mixer: attention and Mamba2 over the same input, whose results are scaled and added.
#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class ParallelLayer final : public Layer {
 public:
  explicit ParallelLayer(const LayerContext& context)
      : context_(context), attention_(kAttentionLayers.make(context)), mamba_(kMamba2Layers.make(context)) {}

  void allocate(std::int64_t rows) override {
    attention_->allocate(rows);
    mamba_->allocate(rows);
    mixed_ = context_.backend.allocate(static_cast<std::size_t>(rows * context_.model.config.width) * sizeof(float));
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
  Buffer mixed_;  // [T, C] the result of Mamba2
};

}  // namespace

const LayerKindRow kParallelLayers = {
    LayerKind::parallel, "attention and Mamba2",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<ParallelLayer>(context); }};

}  // namespace baton
