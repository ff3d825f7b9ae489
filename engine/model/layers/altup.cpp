// SPDX-License-Identifier: Apache-2.0
// AltUp (arXiv 2301.13310) and LAuReL (arXiv 2411.07501) as Gemma 3n has them.
#include <cmath>

#include "engine/model/layers/layer.h"

namespace baton {
namespace {

// Where a further stream is scaled to the size of the first one, its mean square counts as at least this.
constexpr float kLeastMeanSquare = 1e-5f;

}  // namespace

AltUp::AltUp(const LayerContext& context)
    : context_(context),
      config_(context.model.config.altup),
      width_(context.model.config.width),
      streams_(context.model.config.altup.streams) {}

void AltUp::allocate(std::int64_t rows) {
  if (streams_ == 1) return;
  const auto floats = [&](std::int64_t cols) {
    return context_.backend.allocate(static_cast<std::size_t>(rows * cols) * sizeof(float));
  };
  scratch_ = floats(width_);
  low_ = floats(config_.laurel_rank);
  routed_ = floats(streams_);
  coefficients_ = floats(streams_ * streams_);
}

TensorView AltUp::stream(TensorView all, std::int32_t index) const {
  return all.col_range(index * width_, (index + 1) * width_);
}

void AltUp::begin() {
  if (streams_ == 1 || context_.rows.count() == 0) return;
  const TensorView all = context_.rows.streams(), first = stream(all, 0);
  for (std::int32_t i = 1; i < streams_; ++i) {
    context_.backend.matmul(stream(all, i), first, *context_.model.weights.stream_in[static_cast<std::size_t>(i) - 1],
                            {});
    context_.backend.streams().match_rms(stream(all, i), first, kLeastMeanSquare);
  }
}

/// routed_ = tanh of the router's product with the normalised x.
void AltUp::route(const AltUpWeights& weights, ConstTensorView x) {
  Backend& backend = context_.backend;
  const TensorView normed = scratch_.view(DType::f32, x.rows, width_),
                   routed = routed_.view(DType::f32, x.rows, streams_);
  backend.rms_norm(normed, x, weights.router_norm, context_.model.config.norm_eps);
  backend.matmul(routed, normed, *weights.router, {});
  backend.soft_cap(routed, 1.0f);
}

void AltUp::predict(std::int32_t layer) {
  if (streams_ == 1) return;
  const AltUpWeights& w = *context_.weights(layer).altup;
  StreamOperations& operations = context_.backend.streams();
  const TensorView all = context_.rows.streams(), active = stream(all, config_.active);
  const TensorView mixing = coefficients_.view(DType::f32, all.rows, streams_ * streams_);
  route(w, active);
  context_.backend.matmul(mixing, routed_.view(DType::f32, all.rows, streams_), *w.predict, {});
  operations.mix(context_.rows.predictions(), all, all, mixing, width_);
  // The parts of the layer change their own copy, since the prediction is still needed.
  const std::int64_t own = config_.active * streams_;
  operations.mix(context_.rows.residual(), active, all, mixing.col_range(own, own + streams_), width_);
}

void AltUp::add_laurel(std::int32_t layer) {
  if (config_.laurel_rank == 0) return;
  Backend& backend = context_.backend;
  const LayerWeights& w = context_.weights(layer);
  const float eps = context_.model.config.norm_eps;
  const TensorView residual = context_.rows.residual(), delta = context_.rows.delta();
  const TensorView normed = scratch_.view(DType::f32, residual.rows, width_);
  const TensorView low = low_.view(DType::f32, residual.rows, config_.laurel_rank);
  backend.rms_norm(normed, residual, w.input_norm, eps);  // in f32, unlike what products read on some devices
  backend.matmul(low, normed, *w.altup->laurel_in, {});
  backend.matmul(delta, low, *w.altup->laurel_out, {});
  backend.rms_norm(delta, delta, w.altup->laurel_norm, eps);
  backend.add(residual, normed);
  backend.add(residual, delta);
}

void AltUp::correct(std::int32_t layer) {
  if (streams_ == 1) return;
  const AltUpWeights& w = *context_.weights(layer).altup;
  const TensorView residual = context_.rows.residual(), all = context_.rows.streams();
  const TensorView weights = coefficients_.view(DType::f32, residual.rows, streams_);
  route(w, residual);
  context_.backend.matmul(weights, routed_.view(DType::f32, residual.rows, streams_), *w.correct, w.correct_bias);
  context_.backend.streams().correct(all, context_.rows.predictions(), residual, weights, config_.active);
  const TensorView active = stream(all, config_.active);
  if (config_.scaled) {
    context_.backend.streams().scale_columns(residual, active, w.scale);
  } else {  // a copy
    context_.backend.streams().correct(residual, active, active, weights.col_range(0, 1), 0);
  }
}

void AltUp::add_token_input() {
  const TensorView delta = context_.rows.delta();
  if (streams_ == 1) return context_.backend.add(context_.rows.residual(), delta);
  for (std::int32_t i = 1; i < streams_; ++i) context_.backend.add(stream(context_.rows.streams(), i), delta);
}

ConstTensorView AltUp::collapse(TensorView streams) {
  if (streams_ == 1) return streams;
  Backend& backend = context_.backend;
  const TensorView sum = scratch_.view(DType::f32, streams.rows, width_), first = stream(streams, 0);
  const TensorView next = context_.rows.delta_buffer().view(DType::f32, streams.rows, width_);
  for (std::int32_t i = 1; i < streams_; ++i) {
    const TensorView added = i == 1 ? sum : next;
    backend.matmul(added, stream(streams, i), *context_.model.weights.stream_out[static_cast<std::size_t>(i) - 1], {});
    backend.streams().match_rms(added, first, kLeastMeanSquare);
    backend.add(sum, i == 1 ? first : next);
  }
  backend.scale(sum, 1.0f / static_cast<float>(streams_));
  return sum;
}

void AltUp::rehearse(std::int32_t layer, const Layer::Product& run) const {
  if (streams_ == 1) return;
  const AltUpWeights& w = *context_.weights(layer).altup;
  const Weights& weights = context_.model.weights;
  run(routed_, DType::f32, scratch_, *w.router, {});
  run(coefficients_, DType::f32, routed_, *w.predict, {});
  run(coefficients_, DType::f32, routed_, *w.correct, w.correct_bias);
  if (w.laurel_in) {
    run(low_, DType::f32, scratch_, *w.laurel_in, {});
    run(context_.rows.delta_buffer(), DType::f32, low_, *w.laurel_out, {});
  }
  run(scratch_, DType::f32, context_.rows.delta_buffer(), *weights.stream_in.front(), {});
}

}  // namespace baton
