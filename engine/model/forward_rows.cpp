// SPDX-License-Identifier: Apache-2.0
// The rows of a step that run in a layer: rows enter from stored hidden states, leave early, or are dropped by a
// detection.

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/model/forward.h"

namespace baton {
namespace {

bool runs_in(const RowPath& path, std::int32_t layer) { return path.enter <= layer && layer < path.leave; }

}  // namespace

void Forward::check(const StepRows& rows) const {
  const std::int32_t layers = model_.config.layers;
  const auto refuse = [](const std::string& message) { throw std::invalid_argument("step: " + message); };
  if (rows.choices.size() > rows.logits_rows.size())
    refuse(fmt::format("found {} choices; expected at most {}, the rows of logits", rows.choices.size(),
                       rows.logits_rows.size()));
  if (rows.path.empty() && rows.detections.empty()) return;
  for (const Detection& detection : rows.detections) {
    if (detection.layer < 0 || detection.leave <= detection.layer || detection.leave > layers)
      refuse(fmt::format("a detection at layer {} up to layer {} is invalid; the model has {} layers", detection.layer,
                         detection.leave, layers));
  }
  if (rows.path.size() != rows.token.size())
    refuse(fmt::format("found {} paths; expected {}, one for each row", rows.path.size(), rows.size()));
  for (std::size_t i = 0; i < rows.path.size(); ++i) {
    const RowPath& path = rows.path[i];
    if (path.enter < 0 || path.enter >= path.leave || path.leave > layers) {
      refuse(fmt::format("row {} runs through layers [{}, {}); the model has {} layers", i, path.enter, path.leave,
                         layers));
    }
    const KvLayout& layout = rows.caches[static_cast<std::size_t>(rows.sequence[i])]->layout();
    if (path.enter > 0 && (layout.hidden_width != model_.config.width || layout.hidden_layer != path.enter)) {
      refuse(fmt::format("row {} enters at layer {}; its cache holds no hidden states of that layer", i, path.enter));
    }
    if (path.detection < 0) continue;
    if (path.detection >= static_cast<std::int32_t>(rows.detections.size()))
      refuse(fmt::format("row {}: unknown detection {}", i, path.detection));
    const Detection& detection = rows.detections[static_cast<std::size_t>(path.detection)];
    if (path.leave != detection.layer + 1 || detection.leave < path.leave || detection.leave > layers ||
        !detection.choose) {
      refuse(fmt::format("row {} leaves before layer {}; its detection is at layer {}, up to layer {} of {}", i,
                         path.leave, detection.layer, detection.leave, layers));
    }
  }
  for (const std::int32_t row : rows.logits_rows) {
    const RowPath& path = rows.path[static_cast<std::size_t>(row)];
    if (path.leave != layers || path.detection >= 0)
      refuse(fmt::format("found logits of row {}, which may leave early; expected a row through all layers", row));
  }
}

/// Finds the layers in which rows may enter or leave. A layer with a detection is a phase of its own.
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

/// Makes the rows of `layer` the active rows and gathers their residual streams.
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
    if (const float scale = model_.config.embedding_scale; scale != 1.0f) backend_.scale(residual(), scale);
    return;
  }
  if (!changes_[static_cast<std::size_t>(layer)]) return;
  std::vector<std::int32_t> next, from, to;  // rows of the layer; old and new indices of rows that stay
  std::vector<std::int32_t> entering;        // new indices of rows that enter
  std::size_t before = 0;                    // index into active_, which keeps the order of the rows
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

/// Derives sequences, positions and angles from active_.
void Forward::set_active(const StepRows& rows) {
  sequence_.clear();
  position_.clear();
  for (const std::int32_t row : active_) {
    sequence_.push_back(rows.sequence[static_cast<std::size_t>(row)]);
    position_.push_back(rows.position[static_cast<std::size_t>(row)]);
  }
  for (std::size_t rope = 0; rope < cos_.size(); ++rope) {
    const RopeAngles all = table_.all(rope);
    backend_.gather_rows(cos_[rope].view(DType::f32, count(), all.cos.cols), all.cos, position_);
    backend_.gather_rows(sin_[rope].view(DType::f32, count(), all.sin.cols), all.sin, position_);
  }
}

RopeAngles Forward::row_angles(std::int32_t layer) const {
  const std::size_t rope = model_.ropes.of(layer);
  const auto half = static_cast<std::int64_t>(model_.ropes.distinct()[rope].inverse_frequencies().size());
  return {cos_[rope].view(DType::f32, count(), half), sin_[rope].view(DType::f32, count(), half)};
}

RowSpan Forward::span_of(std::int32_t layer) {
  const std::int32_t window = model_.config.window[static_cast<std::size_t>(layer)];
  key_begin_.assign(active_.size(), 0);
  for (std::size_t i = 0; window > 0 && i < key_begin_.size(); ++i)
    key_begin_[i] = std::max(0, position_[i] - window + 1);
  return {sequence_, position_, key_begin_};
}

/// Stores hidden states at the input of the layer in the caches that keep those of this layer.
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

/// Computes the deviations of the rows that a detection of this layer compares.
void Forward::compare_values(const StepRows& rows, std::int32_t layer, ConstTensorView v) {
  deviation_.assign(active_.size(), 0.0f);
  for (const ValueMeasure measure : {ValueMeasure::cosine, ValueMeasure::squared}) {
    index_.assign(active_.size(), kNoSequence);
    bool any = false;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      const std::int32_t d = rows.path[static_cast<std::size_t>(active_[i])].detection;
      if (d < 0) continue;
      const Detection& detection = rows.detections[static_cast<std::size_t>(d)];
      if (detection.layer != layer || detection.measure != measure) continue;
      index_[i] = sequence_[i];
      any = true;
    }
    if (any)
      backend_.value_deviation(deviation_, slabs_, model_.kv_shape(), {index_, position_, key_begin_}, v, measure);
  }
}

/// Returns the fraction of the readers' attention that each compared row's token gets in this layer, whose keys are all
/// stored. `compared`: indices into the active rows. Empty without readers.
std::vector<float> Forward::attention_of_readers(const StepRows& rows, const Detection& detection,
                                                 std::span<const std::size_t> compared, ConstTensorView q) {
  if (compared.empty()) return {};
  const std::int32_t cache = sequence_[compared.front()];
  std::vector<std::int32_t> readers, sequence, position, key_begin;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (sequence_[i] != cache || position_[i] < detection.readers_begin || position_[i] >= detection.readers_end)
      continue;
    readers.push_back(static_cast<std::int32_t>(i));
    sequence.push_back(cache);
    position.push_back(position_[i]);
    key_begin.push_back(key_begin_[i]);
  }
  if (readers.empty()) return {};
  const ModelConfig& c = model_.config;
  const auto n = static_cast<std::int64_t>(readers.size());
  const auto capacity = static_cast<std::size_t>(rows.caches[static_cast<std::size_t>(cache)]->capacity());
  std::vector<AttentionSum> sums(static_cast<std::size_t>(c.kv_heads) * capacity);  // [K, capacity]
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sums));
  const Buffer buffer = backend_.allocate(bytes.size());
  backend_.clear(buffer.data(), bytes.size());
  std::vector<AttentionSum*> given(rows.caches.size(), nullptr);
  given[static_cast<std::size_t>(cache)] = reinterpret_cast<AttentionSum*>(buffer.data());
  const TensorView queries = q_.view(DType::f32, n, q.cols);
  backend_.gather_rows(queries, q, readers);
  backend_.attention(attended_.view(DType::f32, n, q.cols), queries, slabs_, model_.kv_shape(),
                     {sequence, position, key_begin}, c.score_scale(), given);
  backend_.copy_to_host(bytes, buffer.data());
  std::vector<float> attention;
  const double unit = kAttentionUnit / (static_cast<double>(n) * c.heads);
  for (const std::size_t i : compared) {
    AttentionSum sum = 0;
    for (std::size_t head = 0; head < static_cast<std::size_t>(c.kv_heads); ++head)
      sum += sums[head * capacity + static_cast<std::size_t>(position_[i])];
    attention.push_back(static_cast<float>(unit * static_cast<double>(sum)));
  }
  return attention;
}

/// Asks the detections of this layer which of their rows continue, and drops the other rows in the middle of the layer.
/// Returns the queries of the remaining rows.
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
    const std::vector<bool> chosen = detection.choose(deviation, attention_of_readers(rows, detection, at, q));
    if (chosen.size() != at.size())
      throw std::logic_error("step: a detection must return one flag for each of its rows");
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

void StepRows::clear() {
  caches.clear();
  unsummed.clear();
  sequence.clear();
  position.clear();
  token.clear();
  path.clear();
  detections.clear();
  logits_rows.clear();
  choices.clear();
  before_layer = nullptr;
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

}  // namespace baton
