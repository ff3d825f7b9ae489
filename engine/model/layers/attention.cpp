// SPDX-License-Identifier: Apache-2.0
// Attention over the KV cache of each row's sequence, with the detections of reuse methods, which compare the values of
// a layer with those that were cached and drop rows in the middle of it.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/model/layers/layer.h"

namespace baton {
namespace {

bool detects(const StepRows& step, std::int32_t layer) {
  return std::any_of(step.detections.begin(), step.detections.end(),
                     [&](const Detection& d) { return d.layer == layer; });
}

/// Values of layers whose values are keys: a copy, since the two have norms of their own.
class KeyCopies {
 public:
  explicit KeyCopies(Backend& backend) : backend_(backend) {}

  void allocate(PartMemory& memory, std::int64_t rows, std::int64_t cols) { copies_ = memory.take(rows, cols); }
  TensorView copy(ConstTensorView k) {
    const TensorView v = copies_.view(DType::f32, k.rows, k.cols);
    rows_.resize(static_cast<std::size_t>(k.rows));
    std::iota(rows_.begin(), rows_.end(), 0);
    backend_.gather_rows(v, k, rows_);
    return v;
  }

 private:
  Backend& backend_;
  Area copies_;  // [T, K D]
  std::vector<std::int32_t> rows_;
};

class AttentionLayer final : public Layer {
 public:
  explicit AttentionLayer(const LayerContext& context)
      : context_(context),
        backend_(context.backend),
        config_(context.model.config),
        rows_(context.rows),
        key_copies_(context.backend) {}

  void allocate(PartMemory& memory, std::int64_t rows) override;
  void prepare(const StepRows& step) override;
  void run(StepRows& step, std::int32_t layer, ConstTensorView normed) override;
  /// A temperature of queries depends on positions.
  bool decides_on_host() const override { return config_.temperature.beta != 0.0; }
  void rehearse(std::int32_t layer, const Product& run) const override;

 private:
  // The columns of the first product of a layer: queries, keys and values of its own, and the gate if there is one.
  std::int64_t q_cols(std::int32_t layer) const;
  std::int64_t k_cols(std::int32_t layer) const;
  std::int64_t v_cols(std::int32_t layer) const { return config_.keys_as_values(layer) ? 0 : k_cols(layer); }
  std::int64_t product_cols(std::int32_t layer) const;
  void store(const StepRows& step, std::int32_t layer, const RowSpan& span);
  void temper(TensorView q, const RowSpan& span);
  RowSpan stored_rows(const StepRows& step, std::int32_t layer, const RowSpan& rows);
  void compare_values(const StepRows& step, std::int32_t layer, const RowSpan& span, ConstTensorView v);
  std::vector<float> attention_of_readers(const StepRows& step, const Detection& detection,
                                          std::span<const std::size_t> compared, const RowSpan& span,
                                          ConstTensorView q);
  TensorView detect(StepRows& step, std::int32_t layer, const RowSpan& span, ConstTensorView q);

  LayerContext context_;
  Backend& backend_;
  const ModelConfig& config_;
  LayerRows& rows_;
  Area qkv_;       // [T, product_cols()]
  Area q_;         // [T, H D] queries of a detection's readers, then of the rows that it leaves
  Area attended_;  // [T, H D]
  KeyCopies key_copies_;
  std::vector<KvSlab> slabs_;
  std::vector<AttentionSum*> received_;  // of each cache of the step, or empty
  std::vector<std::int32_t> stored_;     // sequences of the rows, without rows that keep their K and V
  std::vector<std::int32_t> compared_;   // sequences of the rows that a detection compares
  std::vector<float> deviation_;
  std::vector<std::int32_t> tempered_;  // rows whose queries are multiplied, and by how much more than 1
  std::vector<float> factor_less_one_;
};

std::int64_t AttentionLayer::q_cols(std::int32_t layer) const {
  return std::int64_t{config_.heads} * config_.head_dim_of(layer);
}

std::int64_t AttentionLayer::k_cols(std::int32_t layer) const {
  return config_.stores_kv(layer) ? std::int64_t{config_.kv_heads_of(layer)} * config_.head_dim_of(layer) : 0;
}

std::int64_t AttentionLayer::product_cols(std::int32_t layer) const {
  return q_cols(layer) + k_cols(layer) + v_cols(layer) + (config_.attention_gate ? q_cols(layer) : 0);
}

void AttentionLayer::allocate(PartMemory& memory, std::int64_t rows) {
  std::int64_t product = 0, q = 0, copied = 0;
  for (std::int32_t layer = 0; layer < config_.layers; ++layer) {
    if (!config_.attends(layer)) continue;
    product = std::max(product, product_cols(layer));
    q = std::max(q, q_cols(layer));
    copied = std::max(copied, k_cols(layer) - v_cols(layer));
  }
  qkv_ = memory.take(rows, product);
  attended_ = memory.take(rows, q);
  key_copies_.allocate(memory, rows, copied);
  q_ = memory.take(rows, q);  // the last: it takes pages when it is used
}

void AttentionLayer::prepare(const StepRows& step) {
  received_.clear();
  for (const KvCache* cache : step.caches) {
    const bool summed = std::find(step.unsummed.begin(), step.unsummed.end(), cache) == step.unsummed.end();
    received_.push_back(summed ? cache->received() : nullptr);
  }
  if (std::all_of(received_.begin(), received_.end(), [](const auto* sums) { return sums == nullptr; }))
    received_.clear();
}

void AttentionLayer::run(StepRows& step, std::int32_t layer, ConstTensorView normed) {
  const LayerWeights& w = context_.weights(layer);
  const std::int32_t kv_layer = config_.kv_layer(layer);
  const TensorView qkv = qkv_.view(DType::f32, rows_.count(), product_cols(layer));
  TensorView q = qkv.col_range(0, q_cols(layer));

  slabs_.clear();
  for (const KvCache* cache : step.caches) slabs_.push_back(cache->slab(kv_layer));

  backend_.matmul(qkv, normed, *w.qkv, w.qkv_bias);
  RowSpan span = rows_.span_of(layer);
  const bool detecting = detects(step, layer);
  if (kv_layer == layer) {
    store(step, layer, span);
  } else {
    backend_.head_rms_norm(q, w.q_norm, config_.norm_eps);
    backend_.rope(q, config_.head_dim_of(layer), rows_.angles(layer));
  }
  if (detecting) {
    q = detect(step, layer, span, q);
    span = rows_.span_of(layer);
    context_.timer.end_detection();
    if (rows_.count() == 0) return;
  }
  const DType type = config_.attention_gate ? DType::f32 : normed.dtype;
  const TensorView attended = attended_.view(type, rows_.count(), q_cols(layer));
  backend_.kv().attention(attended, q, slabs_, context_.model.kv_shape(kv_layer), span,
                          {config_.score_scale(layer), w.sinks}, received_);
  if (config_.attention_gate)
    backend_.multiply(attended, qkv.col_range(qkv.cols - q_cols(layer), qkv.cols), GateFunction::sigmoid);
  backend_.matmul(rows_.delta(), attended, *w.output, w.output_bias);
}

/// Stores keys and values of the rows, and normalises and rotates their queries. With a detection the values are
/// compared with those that are cached, before these are overwritten.
void AttentionLayer::store(const StepRows& step, std::int32_t layer, const RowSpan& span) {
  const LayerWeights& w = context_.weights(layer);
  const std::int64_t k_begin = q_cols(layer), v_begin = k_begin + k_cols(layer), v_end = v_begin + v_cols(layer);
  const TensorView qkv = qkv_.view(DType::f32, rows_.count(), product_cols(layer));
  const TensorView q = qkv.col_range(0, k_begin), k = qkv.col_range(k_begin, v_begin);
  const TensorView v = v_cols(layer) > 0 ? qkv.col_range(v_begin, v_end) : key_copies_.copy(k);
  if (!w.v_norm.empty()) backend_.head_rms_norm(v, w.v_norm, config_.norm_eps);
  const RowSpan stored = stored_rows(step, layer, span);
  HeadNorms norms{w.q_norm, w.k_norm, config_.norm_eps};
  if (config_.qk_norm_of_row) {
    backend_.rms_norm(q, q, w.q_norm, config_.norm_eps);
    backend_.rms_norm(k, k, w.k_norm, config_.norm_eps);
    norms = {};
  }
  if (config_.norm_behind_rope) norms.q = {};  // the weights of k's norm are ones, and its length does not change
  temper(q, span);
  if (detects(step, layer)) {
    context_.timer.end_layers(layer, layer + 1);
    compare_values(step, layer, span, v);
  }
  backend_.kv().norm_store_rope({q, k, v}, norms, slabs_, context_.model.kv_shape(layer), stored, rows_.angles(layer));
  if (config_.norm_behind_rope) backend_.head_rms_norm(q, w.q_norm, config_.norm_eps);
}

/// Multiplies queries as the model's temperature says; up to the first period none changes.
void AttentionLayer::temper(TensorView q, const RowSpan& span) {
  const QueryTemperature& temperature = config_.temperature;
  const auto changes = [&](std::int32_t position) { return position >= temperature.period; };
  if (temperature.beta == 0.0 || std::ranges::none_of(span.position, changes)) return;
  tempered_.clear();
  factor_less_one_.clear();
  for (std::size_t i = 0; i < span.position.size(); ++i) {
    tempered_.push_back(static_cast<std::int32_t>(i));
    factor_less_one_.push_back(temperature.at(span.position[i]) - 1.0f);
  }
  backend_.add_weighted_rows(q, q, tempered_, factor_less_one_);
}

void AttentionLayer::rehearse(std::int32_t layer, const Product& run) const {
  const LayerWeights& w = context_.weights(layer);
  run(qkv_, DType::f32, rows_.normed(), *w.qkv, w.qkv_bias);
  run(rows_.delta_buffer(), DType::f32, attended_, *w.output, w.output_bias);
}

/// Returns the rows whose K and V are stored: those that keep what the cache holds are skipped.
RowSpan AttentionLayer::stored_rows(const StepRows& step, std::int32_t layer, const RowSpan& rows) {
  stored_ = rows_.sequence();
  for (std::size_t i = 0; !step.path.empty() && i < stored_.size(); ++i) {
    const RowPath& path = step.path[static_cast<std::size_t>(rows_.active()[i])];
    if (path.keeps(layer)) stored_[i] = kNoSequence;
  }
  return {stored_, rows.position, rows.key_begin};
}

/// Computes the deviations of the rows that a detection of this layer compares.
void AttentionLayer::compare_values(const StepRows& step, std::int32_t layer, const RowSpan& span, ConstTensorView v) {
  const std::vector<std::int32_t>& active = rows_.active();
  deviation_.assign(active.size(), 0.0f);
  for (const ValueMeasure measure : {ValueMeasure::cosine, ValueMeasure::squared}) {
    compared_.assign(active.size(), kNoSequence);
    bool any = false;
    for (std::size_t i = 0; i < active.size(); ++i) {
      const std::int32_t d = step.path[static_cast<std::size_t>(active[i])].detection;
      if (d < 0) continue;
      const Detection& detection = step.detections[static_cast<std::size_t>(d)];
      if (detection.layer != layer || detection.measure != measure) continue;
      compared_[i] = span.sequence[i];
      any = true;
    }
    if (any)
      backend_.kv().value_deviation(deviation_, slabs_, context_.model.kv_shape(layer),
                                    {compared_, span.position, span.key_begin}, v, measure);
  }
}

/// Returns the fraction of the readers' attention that each compared row's token gets in this layer, whose keys are all
/// stored. `compared`: indices into the active rows. Empty without readers.
std::vector<float> AttentionLayer::attention_of_readers(const StepRows& step, const Detection& detection,
                                                        std::span<const std::size_t> compared, const RowSpan& span,
                                                        ConstTensorView q) {
  if (compared.empty()) return {};
  const std::span<const float> sinks = context_.weights(detection.layer).sinks;
  const std::int32_t cache = span.sequence[compared.front()];
  std::vector<std::int32_t> readers, sequence, position, key_begin;
  for (std::size_t i = 0; i < span.position.size(); ++i) {
    if (span.sequence[i] != cache || span.position[i] < detection.readers_begin ||
        span.position[i] >= detection.readers_end)
      continue;
    readers.push_back(static_cast<std::int32_t>(i));
    sequence.push_back(cache);
    position.push_back(span.position[i]);
    key_begin.push_back(span.key_begin[i]);
  }
  if (readers.empty()) return {};
  const auto n = static_cast<std::int64_t>(readers.size());
  const KvShape shape = context_.model.kv_shape(detection.layer);
  const auto capacity = static_cast<std::size_t>(step.caches[static_cast<std::size_t>(cache)]->capacity());
  std::vector<AttentionSum> sums(static_cast<std::size_t>(shape.kv_heads) * capacity);  // [K, capacity]
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sums));
  const Buffer buffer = backend_.allocate(bytes.size());
  backend_.clear(buffer.data(), bytes.size());
  std::vector<AttentionSum*> given(step.caches.size(), nullptr);
  given[static_cast<std::size_t>(cache)] = reinterpret_cast<AttentionSum*>(buffer.data());
  const TensorView queries = q_.view(DType::f32, n, q.cols);
  backend_.gather_rows(queries, q, readers);
  backend_.kv().attention(attended_.view(DType::f32, n, q.cols), queries, slabs_, shape,
                          {sequence, position, key_begin}, {config_.score_scale(detection.layer), sinks}, given);
  backend_.copy_to_host(bytes, buffer.data());
  std::vector<float> attention;
  const double unit = kAttentionUnit / (static_cast<double>(n) * config_.heads);
  for (const std::size_t i : compared) {
    AttentionSum sum = 0;
    for (std::size_t head = 0; head < static_cast<std::size_t>(shape.kv_heads); ++head)
      sum += sums[head * capacity + static_cast<std::size_t>(span.position[i])];
    attention.push_back(static_cast<float>(unit * static_cast<double>(sum)));
  }
  return attention;
}

/// Asks the detections of this layer which of their rows continue, and drops the other rows in the middle of the layer.
/// Returns the queries of the remaining rows.
TensorView AttentionLayer::detect(StepRows& step, std::int32_t layer, const RowSpan& span, ConstTensorView q) {
  const std::vector<std::int32_t>& active = rows_.active();
  std::vector<char> dropped(active.size(), 0);
  for (std::size_t d = 0; d < step.detections.size(); ++d) {
    const Detection& detection = step.detections[d];
    if (detection.layer != layer) continue;
    std::vector<float> deviation;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < active.size(); ++i) {
      if (step.path[static_cast<std::size_t>(active[i])].detection != static_cast<std::int32_t>(d)) continue;
      deviation.push_back(deviation_[i]);
      at.push_back(i);
    }
    const std::vector<bool> chosen = detection.choose(deviation, attention_of_readers(step, detection, at, span, q));
    if (chosen.size() != at.size())
      throw std::logic_error("step: a detection must return one flag for each of its rows");
    for (std::size_t i = 0; i < at.size(); ++i) {
      dropped[at[i]] = chosen[i] ? 0 : 1;
      if (chosen[i]) step.path[static_cast<std::size_t>(active[at[i]])].leave = detection.leave;
    }
  }
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < active.size(); ++i) {
    if (dropped[i] == 0) kept.push_back(static_cast<std::int32_t>(i));
  }
  const TensorView queries = q_.view(DType::f32, static_cast<std::int64_t>(kept.size()), q.cols);
  backend_.gather_rows(queries, q, kept);
  rows_.keep(step, kept);
  return queries;
}

}  // namespace

const LayerKindRow kAttentionLayers = {
    LayerKind::attention, "attention",
    [](const LayerContext& context) -> std::unique_ptr<Layer> { return std::make_unique<AttentionLayer>(context); }};

}  // namespace baton
