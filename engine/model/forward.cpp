#include "engine/model/forward.h"

#include <algorithm>
#include <cmath>

namespace baton {

void StepRows::clear() {
  caches.clear();
  sequence.clear();
  position.clear();
  token.clear();
  logits_rows.clear();
}

std::int32_t StepRows::add_cache(KvCache* cache) {
  const auto found = std::find(caches.begin(), caches.end(), cache);
  if (found != caches.end()) return static_cast<std::int32_t>(found - caches.begin());
  caches.push_back(cache);
  return static_cast<std::int32_t>(caches.size() - 1);
}

void StepRows::add_row(std::int32_t cache, std::int32_t at, TokenId id) {
  sequence.push_back(cache);
  position.push_back(at);
  token.push_back(id);
}

Forward::Forward(Backend& backend, const Model& model) : backend_(backend), model_(model) {}

void Forward::reserve(std::int64_t rows, std::int64_t logits_rows) {
  const ModelConfig& c = model_.config;
  const auto floats = [&](std::int64_t count, std::int64_t cols) {
    return backend_.allocate(static_cast<std::size_t>(count * cols) * sizeof(float));
  };
  if (rows > row_capacity_) {
    const std::int64_t n = std::max(rows, 2 * row_capacity_);
    x_ = floats(n, c.width);
    normed_ = floats(n, c.width);
    qkv_ = floats(n, (c.heads + 2 * c.kv_heads) * c.head_dim);
    attended_ = floats(n, c.heads * c.head_dim);
    delta_ = floats(n, c.width);
    gate_up_ = floats(n, 2 * static_cast<std::int64_t>(c.ffn_width));
    hidden_ = floats(n, c.ffn_width);
    cos_ = floats(n, c.head_dim / 2);
    sin_ = floats(n, c.head_dim / 2);
    host_angles_.resize(static_cast<std::size_t>(n * c.head_dim));
    whole_.assign(static_cast<std::size_t>(n), 0);
    windowed_.resize(static_cast<std::size_t>(n));
    row_capacity_ = n;
  }
  if (logits_rows > logits_capacity_) {
    const std::int64_t n = std::max(logits_rows, 2 * logits_capacity_);
    last_ = floats(n, c.width);
    logits_ = floats(n, c.vocabulary);
    host_logits_.resize(static_cast<std::size_t>(n * c.vocabulary));
    logits_capacity_ = n;
  }
}

void Forward::prepare(const StepRows& rows) {
  row_count_ = rows.size();
  reserve(row_count_, static_cast<std::int64_t>(rows.logits_rows.size()));
  window_ = 0;
  const auto count = static_cast<std::size_t>(row_count_ * model_.config.head_dim / 2);
  const std::span<float> cos(host_angles_.data(), count);
  const std::span<float> sin(host_angles_.data() + count, count);
  model_.rope.angles(cos, sin, rows.position);
  backend_.copy_to_device(cos_.data(), std::as_bytes(cos));
  backend_.copy_to_device(sin_.data(), std::as_bytes(sin));
}

std::span<const float> Forward::run(const StepRows& rows) {
  const ModelConfig& c = model_.config;
  prepare(rows);
  backend_.embed(x_.view(DType::f32, row_count_, c.width), *model_.weights.embedding, rows.token);
  for (std::int32_t layer = 0; layer < c.layers; ++layer) run_layer(layer, rows);

  const auto wanted = static_cast<std::int64_t>(rows.logits_rows.size());
  if (wanted == 0) return {};
  const TensorView last = last_.view(DType::f32, wanted, c.width);
  const TensorView logits = logits_.view(DType::f32, wanted, c.vocabulary);
  backend_.gather_rows(last, x_.view(DType::f32, row_count_, c.width), rows.logits_rows);
  backend_.rms_norm(last, last, model_.weights.final_norm, c.norm_eps);
  backend_.matmul(logits, last, *model_.weights.lm_head, {});
  const std::span<float> host(host_logits_.data(), static_cast<std::size_t>(wanted * c.vocabulary));
  backend_.copy_to_host(std::as_writable_bytes(host), logits.data);
  return host;
}

void Forward::run_layer(std::int32_t layer, const StepRows& rows) {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(layer)];
  const std::int64_t q_cols = static_cast<std::int64_t>(c.heads) * c.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(c.kv_heads) * c.head_dim;
  const TensorView x = x_.view(DType::f32, row_count_, c.width);
  const TensorView normed = normed_.view(DType::f32, row_count_, c.width);
  const TensorView delta = delta_.view(DType::f32, row_count_, c.width);
  const TensorView qkv = qkv_.view(DType::f32, row_count_, q_cols + 2 * kv_cols);
  const TensorView q = qkv.col_range(0, q_cols);
  const TensorView k = qkv.col_range(q_cols, q_cols + kv_cols);
  const TensorView v = qkv.col_range(q_cols + kv_cols, q_cols + 2 * kv_cols);
  const RopeAngles angles{cos_.view(DType::f32, row_count_, c.head_dim / 2), sin_.view(DType::f32, row_count_, c.head_dim / 2)};

  slabs_.clear();
  for (const KvCache* cache : rows.caches) slabs_.push_back(cache->slab(layer));
  const auto count = static_cast<std::size_t>(row_count_);
  const std::int32_t window = c.window[static_cast<std::size_t>(layer)];
  if (window > 0 && window != window_) {
    for (std::size_t i = 0; i < count; ++i) windowed_[i] = std::max(0, rows.position[i] - window + 1);
    window_ = window;
  }
  const RowSpan span{rows.sequence, rows.position, {window > 0 ? windowed_.data() : whole_.data(), count}};

  backend_.rms_norm(normed, x, w.input_norm, c.norm_eps);
  backend_.matmul(qkv, normed, *w.qkv, w.qkv_bias);
  if (c.qk_norm) {
    backend_.head_rms_norm(q, w.q_norm, c.norm_eps);
    backend_.head_rms_norm(k, w.k_norm, c.norm_eps);
  }
  backend_.store_kv(slabs_, model_.kv_shape(), span, k, v, angles);
  backend_.rope(q, c.head_dim, angles);
  const TensorView attended = attended_.view(DType::f32, row_count_, q_cols);
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  backend_.attention(attended, q, slabs_, model_.kv_shape(), span, scale);
  backend_.matmul(delta, attended, *w.output, w.output_bias);

  backend_.add_rms_norm(normed, x, delta, w.mlp_norm, c.norm_eps);
  const TensorView gate_up = gate_up_.view(DType::f32, row_count_, 2 * static_cast<std::int64_t>(c.ffn_width));
  const TensorView hidden = hidden_.view(DType::f32, row_count_, c.ffn_width);
  backend_.matmul(gate_up, normed, *w.gate_up, w.gate_up_bias);
  backend_.silu_mul(hidden, gate_up);
  backend_.matmul(delta, hidden, *w.down, w.down_bias);
  backend_.add(x, delta);
}

}  // namespace baton
