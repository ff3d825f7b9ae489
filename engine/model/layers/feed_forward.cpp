// SPDX-License-Identifier: Apache-2.0
// The gated MLP: down(activation(gate) * up). In sparse layers (Gemma 3n) only the largest gates count.
#include <cmath>

#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class FeedForwardLayer final : public Layer {
 public:
  explicit FeedForwardLayer(const LayerContext& context) : context_(context) {}

  void allocate(PartMemory& /*memory*/, std::int64_t /*rows*/) override {}
  bool has_gates() const override { return true; }

  void run(StepRows& /*step*/, std::int32_t layer, ConstTensorView normed) override {
    const LayerWeights& w = context_.weights(layer);
    const TensorView delta = context_.rows.delta();
    Gates& gates = context_.gates;
    const std::int64_t count = normed.rows;
    const std::int64_t blocks = (count + gates.max_rows() - 1) / gates.max_rows();
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t begin = count * block / blocks, end = count * (block + 1) / blocks;
      const TensorView gate_up = gates.gate_up(*w.gate_up, w.gate_up_bias, end - begin);
      context_.backend.matmul(gate_up, normed.row_range(begin, end), *w.gate_up, w.gate_up_bias);
      if (const float deviations = context_.model.config.gate_deviations(layer); !std::isnan(deviations))
        context_.backend.streams().keep_peaks(gate_up.col_range(0, gate_up.cols / 2), deviations);
      const TensorView hidden = gates.gated(gate_up, *w.down);
      context_.backend.matmul(delta.row_range(begin, end), hidden, *w.down, w.down_bias);
    }
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const LayerWeights& w = context_.weights(layer);
    const Gates& gates = context_.gates;
    run(gates.product_memory(), gates.type(*w.gate_up, w.gate_up_bias), context_.rows.normed(), *w.gate_up,
        w.gate_up_bias);
    run(context_.rows.delta_buffer(), DType::f32, gates.operand_memory(), *w.down, w.down_bias);
  }

 private:
  LayerContext context_;
};

}  // namespace

const LayerKindRow kFeedForwardLayers = {
    LayerKind::feed_forward, "feed-forward",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<FeedForwardLayer>(context); }};

}  // namespace baton
