// SPDX-License-Identifier: Apache-2.0
#include "engine/model/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace baton {
namespace {

bool runs_in(const RowPath& path, std::int32_t layer) { return path.enter <= layer && layer < path.leave; }

bool is_whole(const StepRows& rows, std::int32_t layers) {
  return rows.detections.empty() && std::all_of(rows.path.begin(), rows.path.end(), [&](const RowPath& path) {
           return path.enter == 0 && path.leave == layers;
         });
}

}  // namespace

void StepRows::clear() {
  caches.clear();
  stepwise.clear();
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

void check_step(const StepRows& rows, const ModelConfig& config) {
  const std::int32_t layers = config.layers;
  const auto refuse = [](const std::string& message) { throw std::invalid_argument("step: " + message); };
  if (rows.choices.size() > rows.logits_rows.size())
    refuse(fmt::format("found {} choices; expected at most {}, the rows of logits", rows.choices.size(),
                       rows.logits_rows.size()));
  if (rows.path.empty() && rows.detections.empty()) return;
  for (const Detection& detection : rows.detections) {
    if (detection.layer < 0 || detection.leave <= detection.layer || detection.leave > layers)
      refuse(fmt::format("a detection at layer {} up to layer {} is invalid; the model has {} layers", detection.layer,
                         detection.leave, layers));
    if (!rows.caches.empty() && !rows.caches.front()->layout().stores_kv(detection.layer))
      refuse(fmt::format("found a detection at layer {}, which stores no KV to compare", detection.layer));
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
    if (path.enter > 0 && (layout.hidden_width != config.stream_width() || layout.hidden_layer != path.enter)) {
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

void StepStates::prepare(const StepRows& step) {
  rows_.clear();
  runs_.clear();
  begins_.clear();
  if (std::ranges::none_of(step.caches, [](const KvCache* cache) { return cache->states().kept(); })) return;
  if (!is_whole(step, step.caches.front()->layout().layers()))
    throw std::invalid_argument("step: rows of a model with recurrent layers run through all layers");
  std::vector<std::int32_t> own;
  for (std::size_t cache = 0; cache < step.caches.size(); ++cache) {
    own.clear();
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(step.sequence.size()); ++row)
      if (step.sequence[static_cast<std::size_t>(row)] == static_cast<std::int32_t>(cache)) own.push_back(row);
    std::ranges::sort(own, {}, [&](std::int32_t row) { return step.position[static_cast<std::size_t>(row)]; });
    if (!own.empty()) add_runs(step, *step.caches[cache], own);
  }
}

/// `rows`: those of the cache, in the order of their positions.
void StepStates::add_runs(const StepRows& step, KvCache& cache, std::span<const std::int32_t> rows) {
  SequenceStates& states = cache.states();
  const std::int32_t begin = cache.length(), end = begin + static_cast<std::int32_t>(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t position = step.position[static_cast<std::size_t>(rows[i])];
    if (position != begin + static_cast<std::int32_t>(i))
      throw std::invalid_argument(
          fmt::format("step: found a row at position {} of a sequence with a state; expected {}", position,
                      begin + static_cast<std::int32_t>(i)));
  }
  if (!states.can_return(begin))
    throw std::invalid_argument(fmt::format("step: the state behind {} tokens of a sequence is not there", begin));
  states.keep_between(0, begin);  // a step that failed may have left others
  std::vector<std::int32_t> ends = states.wanted(begin, end);
  if (std::ranges::find(step.stepwise, &cache) != step.stepwise.end()) {
    ends.clear();
    for (std::int32_t at = begin + 1; at < end; ++at) ends.push_back(at);
  }
  ends.push_back(end);
  begins_.push_back(states.at(begin));
  const auto floats = [](const std::byte* memory) { return reinterpret_cast<const float*>(memory); };
  const float* from = begins_.back() ? floats(begins_.back()->data()) : nullptr;
  for (std::int32_t at = begin; const std::int32_t next : ends) {
    auto* to = reinterpret_cast<float*>(states.make(next));
    const auto first = static_cast<std::int32_t>(rows_.size());
    for (; at < next; ++at) rows_.push_back(rows[static_cast<std::size_t>(at - begin)]);
    runs_.push_back({first, static_cast<std::int32_t>(rows_.size()), from, to, next != ends.front()});
    from = to;
  }
}

void StepTimer::begin() {
  if (marked_) {
    device_.take_marks();
    alongside_ = 0;
  }
  marked_ = true;
  parts_.clear();
  device_.mark();
}

void StepTimer::alongside(const std::function<void()>& work) {
  try {
    device_.mark();
    work();
    device_.mark();
  } catch (...) {
    marked_ = true;
    throw;
  }
  ++alongside_;
}

void StepTimer::end_part(std::span<double> part) {
  parts_.push_back(part);
  device_.mark();
}

void StepTimer::end_layers(std::int32_t first, std::int32_t last) {
  end_part(std::span(times_.layer).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)));
}

void StepTimer::finish() {
  times_.detect = times_.other = times_.before_layer = 0.0;
  std::fill(times_.layer.begin(), times_.layer.end(), 0.0);
  if (!complete_) device_.mark();
  std::vector<double> between = device_.take_marks();
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

void RowAngles::allocate(std::int64_t rows) {
  cos_.clear();
  sin_.clear();
  for (const Rope& rope : table_.ropes().distinct()) {
    const auto bytes = static_cast<std::size_t>(rows) * rope.inverse_frequencies().size() * sizeof(float);
    cos_.push_back(backend_.allocate(bytes));
    sin_.push_back(backend_.allocate(bytes));
  }
}

void RowAngles::gather(std::span<const std::int32_t> position) {
  const auto rows = static_cast<std::int64_t>(position.size());
  for (std::size_t rope = 0; rope < cos_.size(); ++rope) {
    const RopeAngles all = table_.all(rope);
    backend_.gather_rows(cos_[rope].view(DType::f32, rows, all.cos.cols), all.cos, position);
    backend_.gather_rows(sin_[rope].view(DType::f32, rows, all.sin.cols), all.sin, position);
  }
}

RopeAngles RowAngles::of(std::int32_t layer, std::int64_t rows) const {
  const std::size_t rope = table_.ropes().of(layer);
  const auto half = static_cast<std::int64_t>(table_.ropes().distinct()[rope].inverse_frequencies().size());
  return {cos_[rope].view(DType::f32, rows, half), sin_[rope].view(DType::f32, rows, half)};
}

void ResidualStreams::allocate(std::int64_t rows) {
  const auto bytes = [&](std::int64_t width) { return static_cast<std::size_t>(rows * width) * sizeof(float); };
  all_ = backend_.allocate(bytes(all_width_));
  next_ = backend_.allocate_uninitialized(bytes(all_width_));  // takes pages when it is used
  if (!several()) return;
  active_ = backend_.allocate(bytes(width_));
  predictions_ = backend_.allocate(bytes(all_width_));
}

void ResidualStreams::begin() {
  if (swapped_) swap();
}

void ResidualStreams::swap() {
  std::swap(all_, next_);
  swapped_ = !swapped_;
}

/// Moves the kept rows of a matrix to its beginning.
void ResidualStreams::keep_of(const TensorView& memory, std::span<const std::int32_t> kept) {
  const auto left = static_cast<std::int64_t>(kept.size());
  std::vector<std::int32_t> in_order(kept.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const TensorView moved = next_.view(DType::f32, left, memory.cols);
  backend_.gather_rows(moved, memory, kept);
  TensorView first = memory;
  first.rows = left;
  backend_.gather_rows(first, moved, in_order);
}

void ResidualStreams::keep(std::int64_t rows, std::span<const std::int32_t> kept) {
  if (several()) {  // the streams are made anew of the predictions
    keep_of(predictions(rows), kept);
    keep_of(of_parts(rows), kept);
    return;
  }
  backend_.gather_rows(next(static_cast<std::int64_t>(kept.size())), all(rows), kept);
  swap();
}

void LayerRows::allocate(std::int64_t rows) {
  const auto bytes = [&](std::int64_t width) { return static_cast<std::size_t>(rows * width) * sizeof(float); };
  streams_.allocate(rows);
  normed_ = backend_.allocate(bytes(model_.config.stream_width()));
  delta_ = backend_.allocate(bytes(model_.config.width));
  angles_.allocate(rows);
}

/// A layer with a detection is a phase of its own.
void LayerRows::begin(const StepRows& step) {
  const auto last = std::max_element(step.position.begin(), step.position.end());
  table().reserve(last == step.position.end() ? 0 : *last + 1);
  whole_ = is_whole(step, model_.config.layers);
  changes_.assign(static_cast<std::size_t>(model_.config.layers) + 1, false);
  if (!whole_) {
    for (const RowPath& path : step.path)
      changes_[static_cast<std::size_t>(path.enter)] = changes_[static_cast<std::size_t>(path.leave)] = true;
    for (const Detection& detection : step.detections) {
      for (const std::int32_t layer : {detection.layer, detection.layer + 1, detection.leave})
        changes_[static_cast<std::size_t>(layer)] = true;
    }
  }
  streams_.begin();
}

std::int32_t LayerRows::phase_end(std::int32_t begin) const {
  std::int32_t end = begin + 1;
  while (end < model_.config.layers && !changes_[static_cast<std::size_t>(end)]) ++end;
  return end;
}

void LayerRows::activate(const StepRows& rows, std::int32_t layer) {
  if (layer == 0) {
    active_.clear();
    tokens_.clear();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.token.size()); ++i) {
      if (!rows.path.empty() && rows.path[static_cast<std::size_t>(i)].enter > 0) continue;
      active_.push_back(i);
      tokens_.push_back(rows.token[static_cast<std::size_t>(i)]);
    }
    set_active(rows);
    const TensorView embedded = streams().col_range(0, model_.config.width);
    backend_.embed(embedded, *model_.weights.embedding, tokens_);
    if (const float scale = model_.config.embedding_scale; scale != 1.0f) backend_.scale(embedded, scale);
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
  const std::int64_t width = model_.config.stream_width();
  const auto going_on = static_cast<std::int64_t>(from.size());
  const TensorView moved = normed_.view(DType::f32, going_on, width);
  const TensorView target = streams_.next(static_cast<std::int64_t>(next.size()));
  backend_.gather_rows(entering.empty() ? target : moved, streams(), from);
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
  streams_.swap();
  active_ = std::move(next);
  set_active(rows);
}

/// Derives sequences, positions and angles from active_.
void LayerRows::set_active(const StepRows& rows) {
  sequence_.clear();
  position_.clear();
  for (const std::int32_t row : active_) {
    sequence_.push_back(rows.sequence[static_cast<std::size_t>(row)]);
    position_.push_back(rows.position[static_cast<std::size_t>(row)]);
  }
  angles_.gather(position_);
}

void LayerRows::keep(const StepRows& step, std::span<const std::int32_t> kept) {
  streams_.keep(count(), kept);
  std::vector<std::int32_t> next;
  for (const std::int32_t index : kept) next.push_back(active_[static_cast<std::size_t>(index)]);
  active_ = std::move(next);
  set_active(step);
}

RowSpan LayerRows::span_of(std::int32_t layer) {
  const std::int32_t window = model_.config.window[static_cast<std::size_t>(layer)];
  key_begin_.assign(active_.size(), 0);
  for (std::size_t i = 0; window > 0 && i < key_begin_.size(); ++i)
    key_begin_[i] = std::max(0, position_[i] - window + 1);
  return {sequence_, position_, key_begin_};
}

void LayerRows::keep_hidden(const StepRows& rows, std::int32_t layer) {
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
        normed_.view(DType::f32, static_cast<std::int64_t>(from.size()), model_.config.stream_width());
    backend_.gather_rows(rows_of_cache, streams(), from);
    backend_.scatter_rows(rows.caches[cache]->hidden(), rows_of_cache, to);
  }
}

}  // namespace baton
