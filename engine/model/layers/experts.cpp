// SPDX-License-Identifier: Apache-2.0
#include "engine/model/layers/layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton {

void ExpertChoice::choose(std::span<const float> logits, const MixtureConfig& mixture, std::span<const float> bias,
                          std::span<const float> scale) {
  const auto experts = static_cast<std::size_t>(mixture.experts), count = static_cast<std::size_t>(mixture.chosen);
  const std::size_t rows = logits.size() / experts;
  share_.resize(experts);
  chosen_.clear();
  chosen_weight_.clear();
  begin_.assign(experts + 1, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<const float> own = logits.subspan(row * experts, experts);
    const float most = *std::max_element(own.begin(), own.end());
    float sum = 0.0f;
    for (std::size_t e = 0; e < experts; ++e)
      sum += share_[e] = mixture.sigmoid ? 1.0f / (1.0f + std::exp(-own[e])) : std::exp(own[e] - most);
    if (mixture.sigmoid) sum = 1.0f;
    rank_.assign(own.begin(), own.end());  // logits have the order of their shares, and do not underflow
    for (std::size_t e = 0; e < bias.size(); ++e) rank_[e] = share_[e] + bias[e];
    const std::size_t first = chosen_.size();
    float chosen_sum = 0.0f;
    for (std::size_t i = 0; i < count; ++i) {
      const auto taken = [&](std::size_t expert) {
        return std::find(chosen_.begin() + static_cast<std::ptrdiff_t>(first), chosen_.end(),
                         static_cast<std::int32_t>(expert)) != chosen_.end();
      };
      std::size_t best = experts;
      for (std::size_t e = 0; e < experts; ++e)
        if ((best == experts || rank_[e] > rank_[best]) && !taken(e)) best = e;
      chosen_.push_back(static_cast<std::int32_t>(best));
      chosen_weight_.push_back(share_[best] / sum);
      chosen_sum += chosen_weight_.back();
      ++begin_[best + 1];
    }
    for (std::size_t i = first; i < chosen_.size(); ++i) {
      if (mixture.normalized) chosen_weight_[i] /= chosen_sum + mixture.weight_sum_eps;
      chosen_weight_[i] *= mixture.weight_scale;
      if (!scale.empty()) chosen_weight_[i] *= scale[static_cast<std::size_t>(chosen_[i])];
    }
  }
  for (std::size_t e = 0; e < experts; ++e) begin_[e + 1] += begin_[e];
  rows_.resize(chosen_.size());
  weights_.resize(chosen_.size());
  std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const std::size_t at = next[static_cast<std::size_t>(chosen_[i])]++;
    rows_[at] = static_cast<std::int32_t>(i / count);
    weights_[at] = chosen_weight_[i];
  }
}

namespace {

/// A mixture of experts in the place of the MLP. Each expert runs over its rows; products and sums of a row do not
/// depend on the other rows.
class ExpertLayer final : public Layer {
 public:
  explicit ExpertLayer(const LayerContext& context) : context_(context) {}

  void allocate(PartMemory& memory, std::int64_t rows) override {
    router_ = memory.take(rows, mixture().experts);
    in_ = memory.take(rows, context_.model.config.width);
    out_ = memory.take(rows, context_.model.config.width);
    latent_ = memory.take(rows, mixture().latent_width);
    sum_ = memory.take(rows, mixture().latent_width);
  }
  bool has_gates() const override { return true; }

  /// The host chooses the experts.
  bool decides_on_host() const override { return true; }

  void run(StepRows& /*step*/, std::int32_t layer, ConstTensorView normed) override {
    Backend& backend = context_.backend;
    const LayerWeights& w = context_.weights(layer);
    const std::int64_t count = normed.rows;
    const TensorView delta = context_.rows.delta();
    const TensorView router = router_.view(DType::f32, count, mixture().experts);
    backend.matmul(router, router_input(w, normed), *w.router, w.router_bias);
    router_logits_.resize(static_cast<std::size_t>(count * mixture().experts));
    backend.copy_to_host(std::as_writable_bytes(std::span(router_logits_)), router.data);
    choice_.choose(router_logits_, mixture(), w.choice_bias, w.expert_scale);
    ConstTensorView input = normed;
    TensorView sum = delta;
    if (w.latent_in != nullptr) {
      const TensorView latent = latent_.view(DType::f32, count, width());
      backend.matmul(latent, normed, *w.latent_in, {});
      input = latent;
      sum = sum_.view(DType::f32, count, width());
    }
    backend.clear(sum.data, static_cast<std::size_t>(count * width()) * sizeof(float));
    if (w.latent_in == nullptr) run_shared(w, normed);
    for (std::int32_t expert = 0; expert < mixture().experts; ++expert) {
      const std::span<const std::int32_t> rows = choice_.rows(expert);
      if (rows.empty()) continue;
      const ExpertWeights& own = w.experts[static_cast<std::size_t>(expert)];
      const auto n = static_cast<std::int64_t>(rows.size());
      const TensorView in = in_.view(input.dtype, n, width()), out = out_.view(DType::f32, n, width());
      const TensorView gate_up = context_.gates.gate_up(*own.gate_up, own.gate_up_bias, n);
      backend.gather_rows(in, input, rows);
      backend.matmul(gate_up, in, *own.gate_up, own.gate_up_bias);
      const TensorView hidden = context_.gates.gated(gate_up, *own.down);
      backend.matmul(out, hidden, *own.down, own.down_bias);
      backend.add_weighted_rows(sum, out, rows, choice_.weights(expert));
    }
    if (w.latent_in == nullptr) return;
    backend.matmul(delta, sum, *w.latent_out, {});
    run_shared(w, normed);
  }

  void rehearse(std::int32_t layer, const Product& run) const override {
    const LayerWeights& w = context_.weights(layer);
    const Gates& gates = context_.gates;
    run(router_, DType::f32, context_.rows.normed(), *w.router, w.router_bias);
    const auto run_expert = [&](const ExpertWeights& one) {
      run(gates.product_memory(), gates.type(*one.gate_up, one.gate_up_bias), in_, *one.gate_up, one.gate_up_bias);
      run(out_, DType::f32, gates.operand_memory(), *one.down, one.down_bias);
    };
    for (const ExpertWeights& one : w.experts) run_expert(one);
    if (w.shared.gate_up != nullptr) run_expert(w.shared);
    if (w.shared_gate == nullptr) return;
    run(router_, DType::f32, context_.rows.normed(), *w.shared_gate, {});
  }

 private:
  const MixtureConfig& mixture() const { return context_.model.config.mixture; }
  /// Columns of what the experts read and write.
  std::int64_t width() const {
    return mixture().latent_width > 0 ? mixture().latent_width : context_.model.config.width;
  }

  /// Returns what the router reads: the input of the experts, or the residual stream with a norm of its own.
  ConstTensorView router_input(const LayerWeights& w, ConstTensorView normed) {
    if (w.router_norm.empty()) return normed;
    const TensorView own = in_.view(context_.backend.operand_type(w.router->dtype), normed.rows, normed.cols);
    context_.backend.rms_norm(own, context_.rows.residual(), w.router_norm, context_.model.config.norm_eps);
    return own;
  }

  /// Adds the expert that every row runs through, if there is one, weighted by the sigmoid of its own product or by 1.
  void run_shared(const LayerWeights& w, ConstTensorView normed) {
    if (w.shared.gate_up == nullptr) return;
    Backend& backend = context_.backend;
    const std::int64_t count = normed.rows;
    shared_weight_.assign(static_cast<std::size_t>(count), 1.0f);
    if (w.shared_gate != nullptr) {
      const TensorView gate = router_.view(DType::f32, count, 1);
      backend.matmul(gate, normed, *w.shared_gate, {});
      backend.copy_to_host(std::as_writable_bytes(std::span(shared_weight_)), gate.data);
      for (float& one : shared_weight_) one = 1.0f / (1.0f + std::exp(-one));
    }
    all_rows_.resize(static_cast<std::size_t>(count));
    std::iota(all_rows_.begin(), all_rows_.end(), 0);
    const TensorView gate_up = context_.gates.gate_up(*w.shared.gate_up, {}, count);
    const TensorView out = out_.view(DType::f32, count, context_.model.config.width);
    backend.matmul(gate_up, normed, *w.shared.gate_up, {});
    backend.matmul(out, context_.gates.gated(gate_up, *w.shared.down), *w.shared.down, {});
    backend.add_weighted_rows(context_.rows.delta(), out, all_rows_, shared_weight_);
  }

  LayerContext context_;
  Area router_;                       // [T, E] logits of the router
  Area in_;                           // [T, C] rows of one expert; before that, what the router reads
  Area out_;                          // [T, C]
  Area latent_;                       // [T, W] what experts read, if that is not the layer's input
  Area sum_;                          // [T, W] and the sum of what they write
  std::vector<float> router_logits_;  // [T, E]
  std::vector<float> shared_weight_;  // [T]
  std::vector<std::int32_t> all_rows_;
  ExpertChoice choice_;
};

}  // namespace

const LayerKindRow kExpertsLayers = {
    LayerKind::experts, "experts",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<ExpertLayer>(context); }};

}  // namespace baton
