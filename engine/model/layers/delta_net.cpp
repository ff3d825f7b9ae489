// SPDX-License-Identifier: Apache-2.0
// The gated delta net of Qwen3-Next and Qwen3.5 (arXiv 2412.06464): queries, keys and values go through a short
// convolution; each value head then writes to a state and reads it by the delta rule. The result is normalised head by
// head and multiplied by the silu of a gate. RecurrentWeights::in is [q, k, v, gate, write, decay].
#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class DeltaNetLayer final : public Layer {
 public:
  explicit DeltaNetLayer(const LayerContext& context)
      : context_(context),
        on_host_(context.backend.info().host_memory),
        shape_(context.model.config.recurrent.delta),
        offsets_(state_offsets(context.model.config)) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    projected_ = memory.take(rows, projected_cols());
    convolved_ = memory.take(rows, conv_cols());
    mixed_ = memory.take(on_host_ ? 0 : rows, shape_.value_cols());
  }

  void run(StepRows& /*step*/, std::int32_t layer, ConstTensorView normed) override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    const std::int32_t conv_length = context_.model.config.recurrent.conv_length;
    Backend& backend = context_.backend;
    const TensorView projected = projected_.view(DType::f32, normed.rows, projected_cols());
    const TensorView convolved = convolved_.view(DType::f32, normed.rows, conv_cols());
    const TensorView mixed = on_host_ ? projected.col_range(0, shape_.value_cols())  // once q, k and v are convolved
                                      : mixed_.view(DType::f32, normed.rows, shape_.value_cols());
    const std::int64_t gate = conv_cols(), write = gate + shape_.value_cols(), decay = write + shape_.value_heads;
    const std::int64_t offset = offsets_[static_cast<std::size_t>(layer)];
    backend.matmul(projected, normed, *w.in, w.in_bias);
    backend.recurrence().convolve(convolved, projected.col_range(0, gate), {w.taps, w.conv_bias, conv_length, true},
                                  context_.states.at(offset));
    backend.recurrence().delta_rule(
        mixed, {convolved, projected.col_range(write, decay), projected.col_range(decay, projected_cols())}, shape_,
        {w.rate, w.step_bias}, context_.states.at(offset + conv_state_floats(conv_cols(), conv_length)));
    backend.head_rms_norm(mixed, w.norms.front(), context_.model.config.norm_eps);
    backend.multiply(mixed, projected.col_range(gate, write), GateFunction::silu);
    backend.matmul(context_.rows.delta(), mixed, *w.out, w.out_bias);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const RecurrentWeights& w = *context_.weights(layer).recurrent;
    run(projected_, DType::f32, context_.rows.normed(), *w.in, w.in_bias);
    run(context_.rows.delta_buffer(), DType::f32, mixed_, *w.out, w.out_bias);
  }

 private:
  std::int64_t conv_cols() const { return 2 * shape_.key_cols() + shape_.value_cols(); }
  std::int64_t projected_cols() const { return conv_cols() + shape_.value_cols() + 2 * shape_.value_heads; }

  LayerContext context_;
  const bool on_host_;  // operations read host memory as their own
  const DeltaShape shape_;
  std::vector<std::int64_t> offsets_;  // [L + 1]
  Area projected_;                     // [T, projected_cols()]
  Area convolved_;                     // [T, conv_cols()]
  Area mixed_;                         // [T, value_cols]; empty on the CPU
};

}  // namespace

const LayerKindRow kDeltaNetLayers = {
    LayerKind::delta_net, "gated delta net",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<DeltaNetLayer>(context); }};

}  // namespace baton
