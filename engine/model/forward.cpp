// SPDX-License-Identifier: Apache-2.0
#include "engine/model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace baton {
namespace {

// Steps of more rows spend their time computing, whatever launching costs, and seldom come again in the same form.
constexpr std::int64_t kMostReplayedRows = 64;

bool is_whole(const StepRows& rows, std::int32_t layers) {
  return rows.detections.empty() && std::all_of(rows.path.begin(), rows.path.end(), [&](const RowPath& path) {
           return path.enter == 0 && path.leave == layers;
         });
}

bool runs_in(const RowPath& path, std::int32_t layer) { return path.enter <= layer && layer < path.leave; }

}  // namespace

Forward::Forward(Backend& backend, const Model& model) : backend_(backend), model_(model), table_(backend, model.rope) {
  times_.layer.resize(static_cast<std::size_t>(model.config.layers));
}

void Forward::check(const StepRows& rows) const {
  const std::int32_t layers = model_.config.layers;
  const auto refuse = [](const std::string& message) { throw std::invalid_argument("step: " + message); };
  if (rows.choices.size() > rows.logits_rows.size())
    refuse(fmt::format("{} choices for {} rows of logits", rows.choices.size(), rows.logits_rows.size()));
  if (rows.path.empty() && rows.detections.empty()) return;
  for (const Detection& detection : rows.detections) {
    if (detection.layer < 0 || detection.leave <= detection.layer || detection.leave > layers)
      refuse(fmt::format("a detection at layer {}, up to {} of {}", detection.layer, detection.leave, layers));
  }
  if (rows.path.size() != rows.token.size()) refuse(fmt::format("{} paths for {} rows", rows.path.size(), rows.size()));
  for (std::size_t i = 0; i < rows.path.size(); ++i) {
    const RowPath& path = rows.path[i];
    if (path.enter < 0 || path.enter >= path.leave || path.leave > layers) {
      refuse(fmt::format("row {} runs through layers [{}, {}) of {}", i, path.enter, path.leave, layers));
    }
    const KvLayout& layout = rows.caches[static_cast<std::size_t>(rows.sequence[i])]->layout();
    if (path.enter > 0 && (layout.hidden_width != model_.config.width || layout.hidden_layer != path.enter)) {
      refuse(fmt::format("row {} enters at layer {}, of which its cache holds no hidden states", i, path.enter));
    }
    if (path.detection < 0) continue;
    if (path.detection >= static_cast<std::int32_t>(rows.detections.size()))
      refuse(fmt::format("row {}: no detection {}", i, path.detection));
    const Detection& detection = rows.detections[static_cast<std::size_t>(path.detection)];
    if (path.leave != detection.layer + 1 || detection.leave < path.leave || detection.leave > layers ||
        !detection.choose) {
      refuse(fmt::format("row {} leaves before {}; its detection is at layer {}, up to {} of {}", i, path.leave,
                         detection.layer, detection.leave, layers));
    }
  }
  for (const std::int32_t row : rows.logits_rows) {
    const RowPath& path = rows.path[static_cast<std::size_t>(row)];
    if (path.leave != layers || path.detection >= 0)
      refuse(fmt::format("logits of row {}, which leaves early or may", row));
  }
}

void Forward::reserve(std::int64_t rows, std::int64_t logits_rows) {
  const ModelConfig& c = model_.config;
  const auto floats = [&](std::int64_t count, std::int64_t cols) {
    return backend_.allocate(static_cast<std::size_t>(count * cols) * sizeof(float));
  };
  if (rows > row_capacity_) {
    const std::int64_t n = std::max(rows, 2 * row_capacity_);
    x_ = floats(n, c.width);
    next_x_ = floats(n, c.width);
    normed_ = floats(n, c.width);
    qkv_ = floats(n, (c.heads + 2 * c.kv_heads) * c.head_dim);
    q_ = floats(n, c.heads * c.head_dim);
    attended_ = floats(n, c.heads * c.head_dim);
    delta_ = floats(n, c.width);
    gate_up_ = floats(n, 2 * static_cast<std::int64_t>(c.ffn_width));
    hidden_ = floats(n, c.ffn_width);
    cos_ = floats(n, c.head_dim / 2);
    sin_ = floats(n, c.head_dim / 2);
    row_capacity_ = n;
  }
  if (logits_rows > logits_capacity_) {
    const std::int64_t n = std::max(logits_rows, 2 * logits_capacity_);
    last_ = floats(n, c.width);
    logits_ = floats(n, c.vocabulary);
    choices_ = backend_.allocate(static_cast<std::size_t>(n) * sizeof(ChosenToken));
    logits_capacity_ = n;
  }
}

void Forward::prepare(const StepRows& rows) {
  reserve(rows.size(), static_cast<std::int64_t>(rows.logits_rows.size()));
  const auto last = std::max_element(rows.position.begin(), rows.position.end());
  step_angles_ = table_.range(0, last == rows.position.end() ? 0 : *last + 1);
  received_.clear();
  for (const KvCache* cache : rows.caches) received_.push_back(cache->received());
  if (std::all_of(received_.begin(), received_.end(), [](const auto* sums) { return sums == nullptr; }))
    received_.clear();
}

/// A phase is layers of the same rows. Phases of few rows spend their time being launched, and come again: a whole
/// decode step, and the layers of rectify in which text alone runs.
std::span<const float> Forward::run(StepRows& rows) {
  check(rows);
  prepare(rows);
  whole_ = is_whole(rows, model_.config.layers);
  find_changes(rows);
  if (marked_) {
    backend_.take_marks();
    beside_ = 0;
  }
  marked_ = true;
  if (moved_) move_on();  // a step that comes again finds everything where it was
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
  const bool again = size <= kMostReplayedRows && !detects(rows, begin) && !rows.before_layer;
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

void Forward::arrive(const StepRows& rows, std::int32_t layer) {
  if (!rows.before_layer) return;
  rows.before_layer(layer);
  end_part({&times_.arriving, 1});
}

void Forward::beside(const std::function<void()>& work) {
  backend_.mark();
  try {
    work();
  } catch (...) {
    marked_ = true;
    throw;
  }
  backend_.mark();
  ++beside_;
}

/// The rows are in the other buffer now.
void Forward::move_on() {
  std::swap(x_, next_x_);
  moved_ = !moved_;
}

/// What was given since the last part ended belongs to this one, in equal parts to its numbers.
void Forward::end_part(std::span<double> part) {
  parts_.push_back(part);
  backend_.mark();
}

void Forward::take_times() {
  times_.detect = times_.other = times_.arriving = 0.0;
  std::fill(times_.layer.begin(), times_.layer.end(), 0.0);
  if (!closed_) backend_.mark();
  std::vector<double> between = backend_.take_marks();
  times_.beside.clear();
  for (std::size_t i = 0; i < beside_; ++i) times_.beside.push_back(between.at(2 * i));  // and what lies in between
  between.erase(between.begin(), between.begin() + static_cast<std::ptrdiff_t>(2 * beside_));
  for (std::size_t i = 0; i < between.size(); ++i) {
    const std::span<double> part = i < parts_.size() ? parts_[i] : std::span(&times_.other, 1);
    for (double& one : part) one += between[i] / static_cast<double>(part.size());
  }
  beside_ = 0;
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

/// In which layers rows may enter or leave. A layer that detects is a phase of its own.
void Forward::find_changes(const StepRows& rows) {
  changes_.assign(static_cast<std::size_t>(model_.config.layers) + 1, false);
  if (whole_) return;
  for (const RowPath& path : rows.path)
    changes_[static_cast<std::size_t>(path.enter)] = changes_[static_cast<std::size_t>(path.leave)] = true;
  for (const Detection& detection : rows.detections) {
    for (const std::int32_t layer : {detection.layer, detection.layer + 1, detection.leave})
      changes_[static_cast<std::size_t>(layer)] = true;
  }
}

/// Makes the rows of `layer` the active ones and brings their residual streams together.
void Forward::activate(StepRows& rows, std::int32_t layer) {
  if (layer == 0) {
    active_.clear();
    index_.clear();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.token.size()); ++i) {
      if (!rows.path.empty() && rows.path[static_cast<std::size_t>(i)].enter > 0) continue;
      active_.push_back(i);
      index_.push_back(rows.token[static_cast<std::size_t>(i)]);
    }
    set_active(rows);
    backend_.embed(residual(), *model_.weights.embedding, index_);
    return;
  }
  if (!changes_[static_cast<std::size_t>(layer)]) return;
  std::vector<std::int32_t> next, from, to;  // rows of the layer; of those that go on: where they were and will be
  std::vector<std::int32_t> entering;        // where the others will be
  std::size_t before = 0;                    // in active_, which has the order of the rows
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.path.size()); ++i) {
    const RowPath& path = rows.path[static_cast<std::size_t>(i)];
    if (!runs_in(path, layer)) continue;
    const auto at = static_cast<std::int32_t>(next.size());
    next.push_back(i);
    if (path.enter == layer) {
      entering.push_back(at);
    } else {
      while (active_[before] < i) ++before;
      from.push_back(static_cast<std::int32_t>(before));
      to.push_back(at);
    }
  }
  if (next == active_) return;
  const std::int64_t width = model_.config.width;
  const auto going_on = static_cast<std::int64_t>(from.size());
  const TensorView moved = normed_.view(DType::f32, going_on, width);
  const TensorView target = next_x_.view(DType::f32, static_cast<std::int64_t>(next.size()), width);
  backend_.gather_rows(entering.empty() ? target : moved, residual(), from);
  if (!entering.empty()) backend_.scatter_rows(target, moved, to);
  for (std::size_t cache = 0; cache < rows.caches.size(); ++cache) {
    from.clear();
    to.clear();
    for (const std::int32_t at : entering) {
      const auto row = static_cast<std::size_t>(next[static_cast<std::size_t>(at)]);
      if (rows.sequence[row] != static_cast<std::int32_t>(cache)) continue;
      from.push_back(rows.position[row]);
      to.push_back(at);
    }
    if (from.empty()) continue;
    const TensorView stored = normed_.view(DType::f32, static_cast<std::int64_t>(from.size()), width);
    backend_.gather_rows(stored, rows.caches[cache]->hidden(), from);
    backend_.scatter_rows(target, stored, to);
  }
  move_on();
  active_ = std::move(next);
  set_active(rows);
}

/// What follows from active_: sequences, positions and angles.
void Forward::set_active(const StepRows& rows) {
  sequence_.clear();
  position_.clear();
  for (const std::int32_t row : active_) {
    sequence_.push_back(rows.sequence[static_cast<std::size_t>(row)]);
    position_.push_back(rows.position[static_cast<std::size_t>(row)]);
  }
  const std::int64_t half = model_.config.head_dim / 2;
  backend_.gather_rows(cos_.view(DType::f32, count(), half), step_angles_.cos, position_);
  backend_.gather_rows(sin_.view(DType::f32, count(), half), step_angles_.sin, position_);
}

RopeAngles Forward::row_angles() const {
  const std::int64_t half = model_.config.head_dim / 2;
  return {cos_.view(DType::f32, count(), half), sin_.view(DType::f32, count(), half)};
}

RowSpan Forward::span_of(std::int32_t layer) {
  const std::int32_t window = model_.config.window[static_cast<std::size_t>(layer)];
  key_begin_.assign(active_.size(), 0);
  for (std::size_t i = 0; window > 0 && i < key_begin_.size(); ++i)
    key_begin_[i] = std::max(0, position_[i] - window + 1);
  return {sequence_, position_, key_begin_};
}

/// Hidden states at the input of the layer go into the caches that keep those of this layer.
void Forward::keep_hidden(const StepRows& rows, std::int32_t layer) {
  for (std::size_t cache = 0; cache < rows.caches.size(); ++cache) {
    const KvLayout& layout = rows.caches[cache]->layout();
    if (layout.hidden_width == 0 || layout.hidden_layer != layer) continue;
    std::vector<std::int32_t> from, to;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (sequence_[i] != static_cast<std::int32_t>(cache)) continue;
      from.push_back(static_cast<std::int32_t>(i));
      to.push_back(position_[i]);
    }
    if (from.empty()) continue;
    const TensorView rows_of_cache =
        normed_.view(DType::f32, static_cast<std::int64_t>(from.size()), model_.config.width);
    backend_.gather_rows(rows_of_cache, residual(), from);
    backend_.scatter_rows(rows.caches[cache]->hidden(), rows_of_cache, to);
  }
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

  const DType operand = backend_.operand_type(w.qkv->dtype);  // of what only products read
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
    compare_values(rows, layer, v);  // before the cached values are written over
  }
  backend_.norm_store_rope(q, k, v, norms, slabs_, shape, stored, row_angles());
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
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  backend_.attention(attended, q, slabs_, shape, span, scale, received_);
  backend_.matmul(delta, attended, *w.output, w.output_bias);

  backend_.add_rms_norm(normed, x, delta, w.mlp_norm, c.norm_eps);
  const TensorView gate_up = gate_up_.view(DType::f32, count(), 2 * static_cast<std::int64_t>(c.ffn_width));
  const TensorView hidden = hidden_.view(operand, count(), c.ffn_width);
  backend_.matmul(gate_up, normed, *w.gate_up, w.gate_up_bias);
  backend_.silu_mul(hidden, gate_up);
  backend_.matmul(delta, hidden, *w.down, w.down_bias);
  normed_is_in_ = leads_on(rows, layer);
  if (normed_is_in_) {
    const LayerWeights& next = model_.weights.layers[static_cast<std::size_t>(layer) + 1];
    const TensorView next_normed = normed_.view(backend_.operand_type(next.qkv->dtype), count(), c.width);
    backend_.add_rms_norm(next_normed, x, delta, next.input_norm, c.norm_eps);
  } else {
    backend_.add(x, delta);
  }
}

/// The next layer has the same rows, and nothing looks at their residual streams before its first norm.
bool Forward::leads_on(const StepRows& rows, std::int32_t layer) const {
  return layer + 1 < phase_end_ && std::none_of(rows.caches.begin(), rows.caches.end(), [&](const KvCache* cache) {
           return cache->layout().hidden_width > 0 && cache->layout().hidden_layer == layer + 1;
         });
}

bool Forward::detects(const StepRows& rows, std::int32_t layer) const {
  return std::any_of(rows.detections.begin(), rows.detections.end(),
                     [&](const Detection& d) { return d.layer == layer; });
}

/// Fills in the deviations of the rows that a detection of this layer looks at.
void Forward::compare_values(const StepRows& rows, std::int32_t layer, ConstTensorView v) {
  deviation_.assign(active_.size(), 0.0f);
  index_.assign(active_.size(), kNoSequence);
  for (std::size_t i = 0; i < active_.size(); ++i) {
    const std::int32_t detection = rows.path[static_cast<std::size_t>(active_[i])].detection;
    if (detection >= 0 && rows.detections[static_cast<std::size_t>(detection)].layer == layer) index_[i] = sequence_[i];
  }
  backend_.value_deviation(deviation_, slabs_, model_.kv_shape(), {index_, position_, key_begin_}, v);
}

/// Asks the detections of this layer which of their rows go on, and drops the others, here, in the middle of the layer.
/// Returns the queries of the rows that are left.
TensorView Forward::detect(StepRows& rows, std::int32_t layer, ConstTensorView q) {
  std::vector<char> dropped(active_.size(), 0);
  for (std::size_t d = 0; d < rows.detections.size(); ++d) {
    const Detection& detection = rows.detections[d];
    if (detection.layer != layer) continue;
    std::vector<float> deviation;
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (rows.path[static_cast<std::size_t>(active_[i])].detection != static_cast<std::int32_t>(d)) continue;
      deviation.push_back(deviation_[i]);
      at.push_back(i);
    }
    const std::vector<bool> chosen = detection.choose(deviation);
    if (chosen.size() != at.size()) throw std::logic_error("step: a detection must answer for each of its rows");
    for (std::size_t i = 0; i < at.size(); ++i) {
      dropped[at[i]] = chosen[i] ? 0 : 1;
      if (chosen[i]) rows.path[static_cast<std::size_t>(active_[at[i]])].leave = detection.leave;
    }
  }
  std::vector<std::int32_t> next;
  index_.clear();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (dropped[i] != 0) continue;
    next.push_back(active_[i]);
    index_.push_back(static_cast<std::int32_t>(i));
  }
  const auto left = static_cast<std::int64_t>(next.size());
  const TensorView queries = q_.view(DType::f32, left, q.cols);
  backend_.gather_rows(queries, q, index_);
  backend_.gather_rows(next_x_.view(DType::f32, left, model_.config.width), residual(), index_);
  move_on();
  active_ = std::move(next);
  set_active(rows);
  return queries;
}

}  // namespace baton
