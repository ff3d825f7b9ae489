// SPDX-License-Identifier: Apache-2.0
// The gated short convolution of LFM2: out(c * conv(b * x)), with b, c, x the projections of a row.
// RecurrentWeights::in is [b, c, x].
#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class ShortConvolutionLayer final : public Layer {
 public:
  explicit ShortConvolutionLayer(const LayerContext& context)
      : context_(context), offsets_(state_offsets(context.model.config)) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    projected_ = memory.take(rows, 3 * width());
    mixed_ = memory.take(rows, width());
  }

  void run(StepRows& /*step*/, std::int32_t layer, ConstTensorView normed) override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    const RecurrentConfig& config = context_.model.config.recurrent;
    Backend& backend = context_.backend;
    const TensorView projected = projected_.view(DType::f32, normed.rows, 3 * width());
    const TensorView mixed = mixed_.view(DType::f32, normed.rows, width());
    const TensorView x = projected.col_range(2 * width(), 3 * width());
    backend.matmul(projected, normed, *w.in, w.in_bias);
    backend.multiply(x, projected.col_range(0, width()), GateFunction::none);
    backend.recurrence().convolve(mixed, x, {w.taps, w.conv_bias, config.conv_length},
                                  context_.states.at(offsets_[static_cast<std::size_t>(layer)]));
    backend.multiply(mixed, projected.col_range(width(), 2 * width()), GateFunction::none);
    backend.matmul(context_.rows.delta(), mixed, *w.out, w.out_bias);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    run(projected_, DType::f32, context_.rows.normed(), *w.in, w.in_bias);
    run(context_.rows.delta_buffer(), DType::f32, mixed_, *w.out, w.out_bias);
  }

 private:
  std::int64_t width() const { return context_.model.config.width; }

  LayerContext context_;
  std::vector<std::int64_t> offsets_;  // [L + 1]
  Area projected_;                     // [T, 3 C]
  Area mixed_;                         // [T, C]
};

}  // namespace

const LayerKindRow kShortConvolutionLayers = {LayerKind::short_convolution, "short convolution",
                                              [](const LayerContext& context) -> std::unique_ptr<Layer> {
                                                return std::make_unique<ShortConvolutionLayer>(context);
                                              }};

}  // namespace baton
