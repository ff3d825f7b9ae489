// SPDX-License-Identifier: Apache-2.0
#include "engine/model/forward.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace baton {
namespace {

// Steps of more rows are bound by computation, not by launches, and seldom recur in the same form.
constexpr std::int64_t kMaxReplayedRows = 64;

// Rows of an MLP on the CPU: its [T, 2F] and [T, F] are the largest activations, and products of more rows are no
// faster.
constexpr std::int64_t kMlpRows = 256;

// Products of more rows are not measured by any device.
constexpr std::int64_t kRehearsedRows = 8;

bool is_whole(const StepRows& rows, std::int32_t layers) {
  return rows.detections.empty() && std::all_of(rows.path.begin(), rows.path.end(), [&](const RowPath& path) {
           return path.enter == 0 && path.leave == layers;
         });
}

}  // namespace

Forward::Forward(Backend& backend, const Model& model)
    : backend_(backend), model_(model), on_host_(backend.info().host_memory), table_(backend, model.ropes) {
  times_.layer.resize(static_cast<std::size_t>(model.config.layers));
}

void Forward::reserve(std::int64_t rows, std::int64_t logits_rows) {
  const ModelConfig& c = model_.config;
  const auto floats = [&](std::int64_t count, std::int64_t cols) {
    return backend_.allocate(static_cast<std::size_t>(count * cols) * sizeof(float));
  };
  const auto lazily = [&](std::int64_t count, std::int64_t cols) {  // takes pages when it is used
    return backend_.allocate_uninitialized(static_cast<std::size_t>(count * cols) * sizeof(float));
  };
  if (rows > row_capacity_) {
    const std::int64_t n = std::max(rows, 2 * row_capacity_);
    x_ = floats(n, c.width);
    next_x_ = lazily(n, c.width);
    normed_ = floats(n, c.width);
    qkv_ = floats(n, (c.heads + 2 * c.kv_heads) * c.head_dim);
    q_ = lazily(n, c.heads * c.head_dim);
    attended_ = floats(n, c.heads * c.head_dim);
    delta_ = floats(n, c.width);
    const std::int64_t ffn = std::max(c.ffn_width, c.mixture.ffn_width);
    mlp_rows_ = on_host_ && c.mixture.experts == 0 ? std::min(n, kMlpRows) : n;
    gate_up_ = floats(mlp_rows_, 2 * ffn);
    hidden_ = floats(on_host_ ? 0 : n, ffn);
    if (c.mixture.experts > 0) {
      router_ = floats(n, c.mixture.experts);
      expert_in_ = floats(n, c.width);
      expert_out_ = floats(n, c.width);
    }
    cos_.clear();
    sin_.clear();
    for (const Rope& rope : model_.ropes.distinct()) {
      const auto half = static_cast<std::int64_t>(rope.inverse_frequencies().size());
      cos_.push_back(floats(n, half));
      sin_.push_back(floats(n, half));
    }
    row_capacity_ = n;
  }
  if (logits_rows > logits_capacity_) {
    const std::int64_t n = std::max(logits_rows, 2 * logits_capacity_);
    last_ = floats(n, c.width);
    logits_ = lazily(n, c.vocabulary);
    choices_ = backend_.allocate(static_cast<std::size_t>(n) * sizeof(ChosenToken));
    logits_capacity_ = n;
  }
}

void Forward::prepare(const StepRows& rows) {
  reserve(rows.size(), static_cast<std::int64_t>(rows.logits_rows.size()));
  const auto last = std::max_element(rows.position.begin(), rows.position.end());
  table_.reserve(last == rows.position.end() ? 0 : *last + 1);
  received_.clear();
  for (const KvCache* cache : rows.caches) {
    const bool summed = std::find(rows.unsummed.begin(), rows.unsummed.end(), cache) == rows.unsummed.end();
    received_.push_back(summed ? cache->received() : nullptr);
  }
  if (std::all_of(received_.begin(), received_.end(), [](const auto* sums) { return sums == nullptr; }))
    received_.clear();
}

/// A phase is a range of layers with the same rows. Phases of few rows are bound by launches and recur, so the backend
/// may replay them: a whole decode step, or the layers of rectify in which only text runs.
std::span<const float> Forward::run(StepRows& rows) {
  check(rows);
  prepare(rows);
  whole_ = is_whole(rows, model_.config.layers);
  find_changes(rows);
  if (marked_) {
    backend_.take_marks();
    alongside_ = 0;
  }
  marked_ = true;
  if (moved_) move_on();  // a replayed step needs all buffers at the same addresses
  parts_.clear();
  backend_.mark();
  const std::int32_t layers = model_.config.layers;
  for (std::int32_t begin = 0, end = 0; begin < layers; begin = end) {
    for (end = begin + 1; end < layers && !changes_[static_cast<std::size_t>(end)];) ++end;
    run_phase(rows, begin, end);
  }
  const std::span<const float> result = bring_results(rows);
  take_times();
  return result;
}

void Forward::run_phase(StepRows& rows, std::int32_t begin, std::int32_t end) {
  arrive(rows, begin);
  if (!whole_) activate(rows, begin);
  phase_end_ = end;
  const std::int64_t size = whole_ ? rows.size() : count();
  const bool again =
      size <= kMaxReplayedRows && !detects(rows, begin) && !rows.before_layer && model_.config.mixture.experts == 0;
  const auto part_of = [&](std::int32_t first, std::int32_t last) {
    return std::span(times_.layer).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  };
  backend_.run_step(
      [&] {
        if (whole_) activate(rows, begin);
        normed_is_in_ = false;
        for (std::int32_t layer = begin; layer < end; ++layer) {
          if (layer > begin) arrive(rows, layer);
          keep_hidden(rows, layer);
          if (count() > 0) run_layer(rows, layer);
          if (!again) end_part(part_of(layer, layer + 1));
        }
        if (end == model_.config.layers) compute_logits(rows);
      },
      again);
  if (again) end_part(part_of(begin, end));
  closed_ = again;
}

void Forward::rehearse() {
  reserve(kRehearsedRows, kRehearsedRows);
  std::set<std::tuple<std::int64_t, std::int64_t, DType, bool>> done;
  const auto run = [&](const Buffer& out, DType type, const Buffer& x, const Matrix& w, std::span<const float> bias) {
    if (!done.emplace(w.rows, w.cols, type, bias.empty()).second) return;
    for (std::int64_t rows = 1; rows <= kRehearsedRows; ++rows)
      backend_.matmul(out.view(type, rows, w.rows), x.view(backend_.operand_type(w.dtype), rows, w.cols), w, bias);
  };
  for (std::int32_t layer = 0; layer < model_.config.layers; ++layer) {
    const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(layer)];
    run(qkv_, DType::f32, normed_, *w.qkv, w.qkv_bias);
    run(delta_, DType::f32, attended_, *w.output, w.output_bias);
    if (!model_.config.mixture.in(layer)) {
      run(gate_up_, gate_type(*w.gate_up, w.gate_up_bias), normed_, *w.gate_up, w.gate_up_bias);
      run(delta_, DType::f32, hidden_, *w.down, w.down_bias);
      continue;
    }
    run(router_, DType::f32, normed_, *w.router, {});
    for (const ExpertWeights& one : w.experts) {
      run(gate_up_, gate_type(*one.gate_up, {}), expert_in_, *one.gate_up, {});
      run(expert_out_, DType::f32, hidden_, *one.down, {});
    }
  }
  run(logits_, DType::f32, normed_, *model_.weights.lm_head, {});
  backend_.wait();
}

void Forward::arrive(const StepRows& rows, std::int32_t layer) {
  if (!rows.before_layer) return;
  rows.before_layer(layer);
  end_part({&times_.arriving, 1});
}

void Forward::alongside(const std::function<void()>& work) {
  try {
    backend_.mark();
    work();
    backend_.mark();
  } catch (...) {
    marked_ = true;
    throw;
  }
  ++alongside_;
}

/// Swaps the buffers of the residual stream.
void Forward::move_on() {
  std::swap(x_, next_x_);
  moved_ = !moved_;
}

/// Ends a part of times_: the work submitted since the last part is attributed to it, in equal fractions to its
/// numbers.
void Forward::end_part(std::span<double> part) {
  parts_.push_back(part);
  backend_.mark();
}

void Forward::take_times() {
  times_.detect = times_.other = times_.arriving = 0.0;
  std::fill(times_.layer.begin(), times_.layer.end(), 0.0);
  if (!closed_) backend_.mark();
  std::vector<double> between = backend_.take_marks();
  times_.alongside.clear();
  for (std::size_t i = 0; i < alongside_; ++i)
    times_.alongside.push_back(between.at(2 * i));  // odd entries are the work in between
  between.erase(between.begin(), between.begin() + static_cast<std::ptrdiff_t>(2 * alongside_));
  for (std::size_t i = 0; i < between.size(); ++i) {
    const std::span<double> part = i < parts_.size() ? parts_[i] : std::span(&times_.other, 1);
    for (double& one : part) one += between[i] / static_cast<double>(part.size());
  }
  alongside_ = 0;
  marked_ = false;
}

void Forward::compute_logits(const StepRows& rows) {
  const auto wanted = static_cast<std::int64_t>(rows.logits_rows.size());
  if (wanted == 0) return;
  const ModelConfig& c = model_.config;
  index_.clear();
  for (const std::int32_t row : rows.logits_rows) {
    index_.push_back(
        static_cast<std::int32_t>(std::lower_bound(active_.begin(), active_.end(), row) - active_.begin()));
  }
  const TensorView last = last_.view(DType::f32, wanted, c.width);
  const TensorView logits = logits_.view(DType::f32, wanted, c.vocabulary);
  const Matrix& head = *model_.weights.lm_head;
  const TensorView normed = normed_.view(backend_.operand_type(head.dtype), wanted, c.width);
  backend_.gather_rows(last, residual(), index_);
  backend_.rms_norm(normed, last, model_.weights.final_norm, c.norm_eps);
  backend_.matmul(logits, normed, head, {});
  if (c.logit_cap > 0.0f) backend_.soft_cap(logits, c.logit_cap);
  if (rows.choices.empty()) return;
  backend_.choose(reinterpret_cast<ChosenToken*>(choices_.data()),
                  logits.row_range(0, static_cast<std::int64_t>(rows.choices.size())), rows.choices);
}

std::span<const float> Forward::bring_results(const StepRows& rows) {
  const std::size_t chosen = rows.choices.size(), left = rows.logits_rows.size() - chosen;
  const auto vocabulary = static_cast<std::size_t>(model_.config.vocabulary);
  chosen_.resize(chosen);
  backend_.copy_to_host(std::as_writable_bytes(std::span(chosen_)), choices_.data());
  if (host_logits_.size() < left * vocabulary) host_logits_.resize(left * vocabulary);
  const std::span<float> host(host_logits_.data(), left * vocabulary);
  backend_.copy_to_host(std::as_writable_bytes(host), logits_.data() + chosen * vocabulary * sizeof(float));
  return host;
}

void Forward::run_layer(StepRows& rows, std::int32_t layer) {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(layer)];
  const KvShape shape = model_.kv_shape();
  const std::int64_t q_cols = static_cast<std::int64_t>(c.heads) * c.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(c.kv_heads) * c.head_dim;
  const TensorView qkv = qkv_.view(DType::f32, count(), q_cols + 2 * kv_cols);
  const TensorView k = qkv.col_range(q_cols, q_cols + kv_cols);
  const TensorView v = qkv.col_range(q_cols + kv_cols, q_cols + 2 * kv_cols);
  TensorView q = qkv.col_range(0, q_cols);

  slabs_.clear();
  for (const KvCache* cache : rows.caches) slabs_.push_back(cache->slab(layer));

  const DType operand = backend_.operand_type(w.qkv->dtype);  // type of activations that only matrix products read
  const TensorView first_normed = normed_.view(operand, count(), c.width);
  if (!normed_is_in_) backend_.rms_norm(first_normed, residual(), w.input_norm, c.norm_eps);
  backend_.matmul(qkv, first_normed, *w.qkv, w.qkv_bias);
  stored_ = sequence_;
  for (std::size_t i = 0; !rows.path.empty() && i < stored_.size(); ++i) {
    const RowPath& path = rows.path[static_cast<std::size_t>(active_[i])];
    if (path.keeps(layer)) stored_[i] = kNoSequence;
  }
  RowSpan span = span_of(layer);
  const RowSpan stored{stored_, position_, key_begin_};
  const HeadNorms norms{w.q_norm, w.k_norm, c.norm_eps};
  const bool detecting = detects(rows, layer);
  if (detecting) {
    end_part({&times_.layer[static_cast<std::size_t>(layer)], 1});
    compare_values(rows, layer, v);  // before the cached values are overwritten
  }
  backend_.norm_store_rope(q, k, v, norms, slabs_, shape, stored, row_angles(layer));
  if (detecting) {
    q = detect(rows, layer, q);
    span = span_of(layer);
    end_part({&times_.detect, 1});
    if (count() == 0) return;
  }
  const TensorView x = residual();
  const TensorView normed = normed_.view(operand, count(), c.width);
  const TensorView delta = delta_.view(DType::f32, count(), c.width);
  const TensorView attended = attended_.view(operand, count(), q_cols);
  backend_.attention(attended, q, slabs_, shape, span, c.score_scale(), received_);
  backend_.matmul(delta, attended, *w.output, w.output_bias);
  if (c.post_norms) backend_.rms_norm(delta, delta, w.attention_post_norm, c.norm_eps);

  backend_.add_rms_norm(normed, x, delta, w.mlp_norm, c.norm_eps);
  if (c.mixture.in(layer)) {
    run_mixture(delta, normed, w);
  } else {
    run_mlp(delta, normed, w);
  }
  if (c.post_norms) backend_.rms_norm(delta, delta, w.mlp_post_norm, c.norm_eps);
  normed_is_in_ = leads_on(rows, layer);
  if (normed_is_in_) {
    const LayerWeights& next = model_.weights.layers[static_cast<std::size_t>(layer) + 1];
    const TensorView next_normed = normed_.view(backend_.operand_type(next.qkv->dtype), count(), c.width);
    backend_.add_rms_norm(next_normed, x, delta, next.input_norm, c.norm_eps);
  } else {
    backend_.add(x, delta);
  }
}

/// Returns the type of a product that only gated() reads.
DType Forward::gate_type(const Matrix& gate_up, std::span<const float> bias) const {
  return bias.empty() ? backend_.gate_type(gate_up.dtype) : DType::f32;
}

/// Returns the operand of `down`, [T, F]; on the CPU in the place of the gates.
TensorView Forward::gated(TensorView gate_up, const Matrix& down) {
  const std::int64_t ffn = gate_up.cols / 2;
  const TensorView hidden =
      on_host_ ? gate_up.col_range(0, ffn) : hidden_.view(backend_.operand_type(down.dtype), gate_up.rows, ffn);
  if (model_.config.activation == GateActivation::silu) {
    backend_.silu_mul(hidden, gate_up);
  } else {
    backend_.gelu_mul(hidden, gate_up);
  }
  return hidden;
}

void Forward::run_mlp(TensorView delta, ConstTensorView normed, const LayerWeights& w) {
  const std::int64_t ffn = model_.config.ffn_width;
  const std::int64_t blocks = (count() + mlp_rows_ - 1) / mlp_rows_;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = count() * block / blocks, end = count() * (block + 1) / blocks;
    const TensorView gate_up = gate_up_.view(gate_type(*w.gate_up, w.gate_up_bias), end - begin, 2 * ffn);
    backend_.matmul(gate_up, normed.row_range(begin, end), *w.gate_up, w.gate_up_bias);
    const TensorView hidden = gated(gate_up, *w.down);
    backend_.matmul(delta.row_range(begin, end), hidden, *w.down, w.down_bias);
  }
}

/// The host chooses the experts, so a step with a mixture is not replayed. Each expert runs over its rows; products and
/// sums of a row do not depend on the other rows.
void Forward::run_mixture(TensorView delta, ConstTensorView normed, const LayerWeights& w) {
  const MixtureConfig& mixture = model_.config.mixture;
  const std::int64_t ffn = mixture.ffn_width, width = model_.config.width;
  const TensorView router = router_.view(DType::f32, count(), mixture.experts);
  backend_.matmul(router, normed, *w.router, {});
  router_logits_.resize(static_cast<std::size_t>(count() * mixture.experts));
  backend_.copy_to_host(std::as_writable_bytes(std::span(router_logits_)), router.data);
  experts_.choose(router_logits_, mixture);
  backend_.clear(delta.data, static_cast<std::size_t>(count() * width) * sizeof(float));
  for (std::int32_t expert = 0; expert < mixture.experts; ++expert) {
    const std::span<const std::int32_t> rows = experts_.rows(expert);
    if (rows.empty()) continue;
    const ExpertWeights& own = w.experts[static_cast<std::size_t>(expert)];
    const auto n = static_cast<std::int64_t>(rows.size());
    const TensorView in = expert_in_.view(normed.dtype, n, width), out = expert_out_.view(DType::f32, n, width);
    const TensorView gate_up = gate_up_.view(gate_type(*own.gate_up, {}), n, 2 * ffn);
    backend_.gather_rows(in, normed, rows);
    backend_.matmul(gate_up, in, *own.gate_up, {});
    const TensorView hidden = gated(gate_up, *own.down);
    backend_.matmul(out, hidden, *own.down, {});
    backend_.add_weighted_rows(delta, out, rows, experts_.weights(expert));
  }
}

/// True when the next layer has the same rows and nothing reads their residual streams before its first norm.
bool Forward::leads_on(const StepRows& rows, std::int32_t layer) const {
  return layer + 1 < phase_end_ && std::none_of(rows.caches.begin(), rows.caches.end(), [&](const KvCache* cache) {
           return cache->layout().hidden_width > 0 && cache->layout().hidden_layer == layer + 1;
         });
}

bool Forward::detects(const StepRows& rows, std::int32_t layer) const {
  return std::any_of(rows.detections.begin(), rows.detections.end(),
                     [&](const Detection& d) { return d.layer == layer; });
}

}  // namespace baton
