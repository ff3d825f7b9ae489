// SPDX-License-Identifier: Apache-2.0
// Gemma 4's feed-forward part of the sizes with experts: an MLP and a mixture over the same residual stream, each with
// a norm of its input and of its result; the results are added.
#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class MlpAndExpertsLayer final : public Layer {
 public:
  explicit MlpAndExpertsLayer(const LayerContext& context)
      : context_(context), mlp_(kFeedForwardLayers.make(context)), experts_(kExpertsLayers.make(context)) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    mlp_->allocate(memory, rows);
    experts_->allocate(memory, rows);
    sum_ = memory.take(rows, context_.model.config.width);
  }
  bool has_gates() const override { return true; }
  bool decides_on_host() const override { return true; }

  void run(StepRows& step, std::int32_t layer, ConstTensorView normed) override {
    Backend& backend = context_.backend;
    const LayerWeights& w = context_.weights(layer);
    const float eps = context_.model.config.norm_eps;
    const TensorView delta = context_.rows.delta(), sum = sum_.view(DType::f32, delta.rows, delta.cols);
    mlp_->run(step, layer, normed);
    backend.rms_norm(sum, delta, w.mlp_own_norm, eps);
    const TensorView input = context_.rows.normed(normed.dtype, normed.rows);  // the MLP has read its own
    backend.rms_norm(input, context_.rows.residual(), w.experts_norm, eps);
    experts_->run(step, layer, input);
    backend.rms_norm(delta, delta, w.experts_post_norm, eps);
    backend.add(delta, sum);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    mlp_->rehearse(layer, run);
    experts_->rehearse(layer, run);
  }

 private:
  LayerContext context_;
  std::unique_ptr<Layer> mlp_, experts_;
  Area sum_;  // [T, C] the result of the MLP
};

}  // namespace

const LayerKindRow kMlpAndExpertsLayers = {LayerKind::mlp_and_experts, "MLP and experts",
                                           [](const LayerContext& context) -> std::unique_ptr<Layer> {
                                             return std::make_unique<MlpAndExpertsLayer>(context);
                                           }};

}  // namespace baton
