// SPDX-License-Identifier: Apache-2.0
// Per-layer embeddings, of Gemma 4 and Gemma 3n: each layer ends with norm(out(gelu(gate(x)) * input)), where the input
// of a layer is made of the row's token alone: its row in a second table, and a projection of its embedding.
#include <algorithm>
#include <cmath>

#include "engine/model/layers/layer.h"

namespace baton {
namespace {

class TokenInputLayer final : public Layer {
 public:
  explicit TokenInputLayer(const LayerContext& context)
      : context_(context),
        on_host_(context.backend.info().host_memory),
        width_(context.model.config.token_input.width),
        columns_(width_ * context.model.config.layers) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    inputs_ = {};  // never both
    inputs_ = context_.backend.allocate(static_cast<std::size_t>(rows * columns_) * sizeof(float));
    projected_ = memory.take(rows, columns_);
    gate_ = memory.take(rows, 2 * width_);
    gated_ = memory.take(on_host_ ? 0 : rows, width_);
  }

  /// The inputs of all layers. They are those of all rows of the step, also of rows that enter at a later layer.
  void begin(const StepRows& step) override {
    Backend& backend = context_.backend;
    const Weights& weights = context_.model.weights;
    const ModelConfig& config = context_.model.config;
    const std::int64_t count = step.size();
    const auto per_root = [](std::int64_t n) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))); };
    table_rows_.clear();
    for (const TokenId token : step.token) table_rows_.push_back(token < config.token_input.rows ? token : 0);
    const TensorView embedded = context_.rows.delta_buffer().view(DType::f32, count, config.width);
    const TensorView projected = projected_.view(DType::f32, count, columns_);
    const TensorView inputs = inputs_.view(DType::f32, count, columns_);
    backend.embed(embedded, *weights.embedding, step.token);
    if (config.embedding_scale != 1.0f) backend.scale(embedded, config.embedding_scale);
    backend.matmul(projected, embedded, *weights.token_projection, {});
    backend.scale(projected, per_root(config.width));
    backend.head_rms_norm(projected, weights.token_norm, config.norm_eps);
    backend.embed(inputs, *weights.token_table, table_rows_);
    backend.scale(inputs, static_cast<float>(std::sqrt(static_cast<double>(width_))));
    backend.add(inputs, projected);
    backend.scale(inputs, per_root(2));
  }

  void run(StepRows& step, std::int32_t layer, ConstTensorView x) override {
    Backend& backend = context_.backend;
    const TokenInputWeights& w = *context_.weights(layer).token_input;
    const TensorView delta = context_.rows.delta();
    const TensorView gate = gate_.view(DType::f32, x.rows, 2 * width_);
    const TensorView inputs = inputs_.view(DType::f32, step.size(), columns_);
    backend.matmul(gate.col_range(0, width_), x, *w.gate, {});
    backend.gather_rows(gate.col_range(width_, 2 * width_), inputs.col_range(layer * width_, (layer + 1) * width_),
                        context_.rows.active());
    const TensorView gated =
        on_host_ ? gate.col_range(0, width_) : gated_.view(backend.operand_type(w.out->dtype), x.rows, width_);
    backend.gelu_mul(gated, gate);
    backend.matmul(delta, gated, *w.out, {});
    backend.rms_norm(delta, delta, w.norm, context_.model.config.norm_eps);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const TokenInputWeights& w = *context_.weights(layer).token_input;
    run(gate_, DType::f32, context_.rows.normed(), *w.gate, {});
    run(context_.rows.delta_buffer(), DType::f32, gated_, *w.out, {});
    run(projected_, DType::f32, context_.rows.normed(), *context_.model.weights.token_projection, {});
  }

 private:
  LayerContext context_;
  bool on_host_;                     // operations read host memory as their own
  std::int64_t width_, columns_;     // P; L P
  std::vector<TokenId> table_rows_;  // [T]
  Buffer inputs_;                    // [T, L P] read by all layers of a step
  Area projected_;                   // [T, L P] of begin()
  Area gate_;                        // [T, 2 P] the product of the gate, and the layer's inputs
  Area gated_;                       // [T, P]; empty on the CPU
};

}  // namespace

const LayerKindRow kTokenInputLayers = {
    LayerKind::token_input, "token inputs",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<TokenInputLayer>(context); }};

}  // namespace baton
