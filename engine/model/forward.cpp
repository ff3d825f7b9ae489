// SPDX-License-Identifier: Apache-2.0
#include "engine/model/forward.h"

#include <algorithm>
#include <numbers>
#include <set>
#include <tuple>

namespace baton {
namespace {

// Steps of more rows are bound by computation, not by launches, and seldom recur in the same form.
constexpr std::int64_t kMaxReplayedRows = 64;

// Products of more rows are not measured by any device.
constexpr std::int64_t kRehearsedRows = 8;

}  // namespace

void StepOutputs::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  const std::int64_t n = std::max(rows, 2 * capacity_);
  const auto bytes = [&](std::int64_t cols) { return static_cast<std::size_t>(n * cols) * sizeof(float); };
  last_ = backend_.allocate(bytes(model_.config.stream_width()));
  logits_ = backend_.allocate_uninitialized(bytes(model_.config.vocabulary));  // takes pages when it is used
  choices_ = backend_.allocate(static_cast<std::size_t>(n) * sizeof(ChosenToken));
  capacity_ = n;
}

void StepOutputs::compute(const StepRows& step, const LayerRows& rows, AltUp& altup) {
  const auto wanted = static_cast<std::int64_t>(step.logits_rows.size());
  if (wanted == 0) return;
  const ModelConfig& c = model_.config;
  const std::vector<std::int32_t>& active = rows.active();
  index_.clear();
  for (const std::int32_t row : step.logits_rows)
    index_.push_back(static_cast<std::int32_t>(std::lower_bound(active.begin(), active.end(), row) - active.begin()));
  const TensorView last = last_.view(DType::f32, wanted, c.stream_width());
  const TensorView logits = logits_.view(DType::f32, wanted, c.vocabulary);
  const Matrix& head = *model_.weights.lm_head;
  const TensorView normed = rows.normed(backend_.operand_type(head.dtype), wanted);
  backend_.gather_rows(last, rows.streams(), index_);
  backend_.rms_norm(normed, altup.collapse(last), model_.weights.final_norm, c.norm_eps);
  backend_.matmul(logits, normed, head, {});
  if (c.logit_scale != 1.0f) backend_.scale(logits, c.logit_scale);
  if (c.logit_cap > 0.0f) backend_.soft_cap(logits, c.logit_cap);
  if (step.choices.empty()) return;
  backend_.choose(reinterpret_cast<ChosenToken*>(choices_.data()),
                  logits.row_range(0, static_cast<std::int64_t>(step.choices.size())), step.choices);
}

std::span<const float> StepOutputs::download_results(const StepRows& step) {
  const std::size_t chosen = step.choices.size(), left = step.logits_rows.size() - chosen;
  const auto vocabulary = static_cast<std::size_t>(model_.config.vocabulary);
  chosen_.resize(chosen);
  backend_.copy_to_host(std::as_writable_bytes(std::span(chosen_)), choices_.data());
  const std::byte* logits = logits_.data() + chosen * vocabulary * sizeof(float);
  if (on_host_) return {reinterpret_cast<const float*>(logits), left * vocabulary};
  if (host_logits_.size() < left * vocabulary) host_logits_.resize(left * vocabulary);
  const std::span<float> host(host_logits_.data(), left * vocabulary);
  backend_.copy_to_host(std::as_writable_bytes(host), logits);
  return host;
}

Forward::Forward(Backend& backend, const Model& model)
    : backend_(backend),
      model_(model),
      layers_(layer_list(model.config)),
      timer_(backend, model.config.layers),
      rows_(backend, model),
      part_memory_(backend),
      gates_(backend, model.config),
      altup_({backend_, model_, rows_, timer_, gates_, states_}),
      outputs_(backend, model) {
  const LayerContext context{backend_, model_, rows_, timer_, gates_, states_};
  for (const LayerEntry& layer : layers_) {
    for (const LayerKind kind : {layer.mixer, layer.feed, layer.last}) {
      const auto index = static_cast<std::size_t>(kind);
      if (kind != LayerKind::none && !kinds_[index]) kinds_[index] = layer_kinds()[index]->make(context);
    }
  }
}

void Forward::reserve(std::int64_t rows, std::int64_t logits_rows) {
  if (rows > row_capacity_) {
    const std::int64_t n = std::max(rows, 2 * row_capacity_);
    row_capacity_ = 0;  // until all of it is there
    rows_.allocate(n);
    altup_.allocate(n);
    part_memory_.begin_part(0);
    gates_.allocate(part_memory_, n);
    const std::size_t gates = part_memory_.taken();
    for (const auto& kind : kinds_) {
      if (!kind) continue;
      part_memory_.begin_part(kind->has_gates() ? gates : 0);
      kind->allocate(part_memory_, n);
    }
    part_memory_.provide();
    row_capacity_ = n;
  }
  outputs_.reserve(logits_rows);
}

/// A phase is a range of layers with the same rows. Phases of few rows are bound by launches and recur, so the backend
/// may replay them: a whole decode step, or the layers of rectify in which only text runs.
std::span<const float> Forward::run(StepRows& rows) {
  check_step(rows, model_.config);
  reserve(rows.size(), static_cast<std::int64_t>(rows.logits_rows.size()));
  rows_.begin(rows);
  states_.prepare(rows);
  for (const auto& kind : kinds_)
    if (kind) kind->prepare(rows);
  timer_.begin();
  for (std::int32_t begin = 0, end = 0; begin < model_.config.layers; begin = end) {
    end = rows_.phase_end(begin);
    run_phase(rows, begin, end);
  }
  const std::span<const float> result = outputs_.download_results(rows);
  timer_.finish();
  return result;
}

void Forward::run_phase(StepRows& step, std::int32_t begin, std::int32_t end) {
  run_before_layer(step, begin);
  if (!rows_.whole()) rows_.activate(step, begin);
  const bool again = can_replay(step, begin);
  backend_.run_step(
      [&] {
        if (rows_.whole()) rows_.activate(step, begin);
        normed_is_in_ = false;
        if (begin == 0) altup_.begin();
        for (const auto& kind : kinds_)
          if (kind && begin == 0) kind->begin(step);
        for (std::int32_t layer = begin; layer < end; ++layer) {
          if (layer > begin) run_before_layer(step, layer);
          rows_.keep_hidden(step, layer);
          if (rows_.count() > 0) run_layer(step, layer, end);
          if (!again) timer_.end_layers(layer, layer + 1);
        }
        if (end == model_.config.layers) outputs_.compute(step, rows_, altup_);
      },
      again);
  if (again) timer_.end_layers(begin, end);
  timer_.set_complete(again);
}

/// True if the launches of a phase that begins at `layer` may be replayed.
bool Forward::can_replay(const StepRows& step, std::int32_t layer) const {
  const std::int64_t size = rows_.whole() ? step.size() : rows_.count();
  const auto detects = [&](const Detection& detection) { return detection.layer == layer; };
  return size <= kMaxReplayedRows && !step.before_layer && std::ranges::none_of(step.detections, detects) &&
         std::ranges::none_of(kinds_, [](const auto& kind) { return kind && kind->decides_on_host(); });
}

void Forward::rehearse() {
  reserve(kRehearsedRows, kRehearsedRows);
  std::set<std::tuple<std::int64_t, std::int64_t, DType, bool>> done;
  const auto run = [&](const Area& out, DType type, const Area& x, const Matrix& w, std::span<const float> bias) {
    if (!done.emplace(w.rows, w.cols, type, bias.empty()).second) return;
    for (std::int64_t rows = 1; rows <= kRehearsedRows; ++rows)
      backend_.matmul(out.view(type, rows, w.rows), x.view(backend_.operand_type(w.dtype), rows, w.cols), w, bias);
  };
  for (std::int32_t layer = 0; layer < model_.config.layers; ++layer) {
    const LayerEntry& entry = layers_[static_cast<std::size_t>(layer)];
    for (const LayerKind kind : {entry.mixer, entry.feed, entry.last})
      if (kind != LayerKind::none) part(kind).rehearse(layer, run);
    altup_.rehearse(layer, run);
  }
  run(outputs_.logits(), DType::f32, rows_.normed(), *model_.weights.lm_head, {});
  backend_.wait();
}

void Forward::run_before_layer(const StepRows& step, std::int32_t layer) {
  if (!step.before_layer) return;
  step.before_layer(layer);
  timer_.end_before_layer();
}

/// Returns the input of the layer's parts, in the type that its first product reads.
TensorView Forward::normed_input(std::int32_t layer) const {
  const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(layer)];
  return rows_.normed(backend_.operand_type(w.first().dtype), rows_.count());
}

ConstTensorView Forward::input(std::int32_t layer) const {
  if (model_.config.pre_norms) return normed_input(layer);
  return rows_.residual();
}

void Forward::run_layer(StepRows& step, std::int32_t layer, std::int32_t phase_end) {
  const LayerWeights& w = model_.weights.layers[static_cast<std::size_t>(layer)];
  const LayerEntry& kinds = layers_[static_cast<std::size_t>(layer)];
  altup_.predict(layer);
  if (kinds.mixer != LayerKind::none) {
    normalize(layer, w.input_norm);
    altup_.add_laurel(layer);
    part(kinds.mixer).run(step, layer, input(layer));
    if (rows_.count() == 0) return;
    finish_part(w.attention_post_norm);
    if (kinds.feed == LayerKind::none) return end_layer(step, layer, phase_end);
    if (w.altup && w.altup->laurel_in) {
      backend_.add(rows_.residual(), rows_.delta());
      backend_.scale(rows_.residual(), std::numbers::sqrt2_v<float> / 2.0f);
    } else {
      add_and_normalize(layer, w.mlp_norm);
    }
  }
  normalize(layer, w.mlp_norm);
  part(kinds.feed).run(step, layer, input(layer));
  if (const float factor = model_.config.feed_multiplier; factor != 1.0f) backend_.scale(rows_.delta(), factor);
  finish_part(w.mlp_post_norm);
  end_layer(step, layer, phase_end);
}

/// Normalises the input of a part, if the residual before it has not done so.
void Forward::normalize(std::int32_t layer, std::span<const float> norm) {
  if (!normed_is_in_ && model_.config.pre_norms)
    backend_.rms_norm(normed_input(layer), rows_.residual(), norm, model_.config.norm_eps);
  normed_is_in_ = false;
}

/// Adds the output of a part to the residual stream and normalises the input of the next one, of layer `layer`.
void Forward::add_and_normalize(std::int32_t layer, std::span<const float> norm) {
  normed_is_in_ = model_.config.pre_norms;
  if (normed_is_in_) {
    backend_.add_rms_norm(normed_input(layer), rows_.residual(), rows_.delta(), norm, model_.config.norm_eps);
  } else {
    backend_.add(rows_.residual(), rows_.delta());
  }
}

void Forward::end_layer(StepRows& step, std::int32_t layer, std::int32_t phase_end) {
  const LayerKind last = layers_[static_cast<std::size_t>(layer)].last;
  if (last != LayerKind::none || model_.config.layer_scales) {
    backend_.add(rows_.residual(), rows_.delta());
    altup_.correct(layer);
    if (last != LayerKind::none) {
      part(last).run(step, layer, rows_.residual());
      altup_.add_token_input();
    }
    const float scale = model_.weights.layers[static_cast<std::size_t>(layer)].scale;
    if (scale != 1.0f) backend_.scale(rows_.residual(), scale);
    return;
  }
  if (!next_norm_is_fused(step, layer, phase_end)) return backend_.add(rows_.residual(), rows_.delta());
  const auto next = static_cast<std::size_t>(layer) + 1;
  const LayerWeights& w = model_.weights.layers[next];
  add_and_normalize(layer + 1, layers_[next].mixer == LayerKind::none ? w.mlp_norm : w.input_norm);
}

/// What happens to the output of attention or of an MLP before it is added to the residual stream.
void Forward::finish_part(std::span<const float> post_norm) {
  const ModelConfig& c = model_.config;
  const TensorView delta = rows_.delta();
  if (!post_norm.empty()) backend_.rms_norm(delta, delta, post_norm, c.norm_eps);
  if (c.residual_scale != 1.0f) backend_.scale(delta, c.residual_scale);
}

/// True if the next layer has the same rows and nothing reads their residual streams before its first norm.
bool Forward::next_norm_is_fused(const StepRows& step, std::int32_t layer, std::int32_t phase_end) const {
  return model_.config.pre_norms && layer + 1 < phase_end &&
         std::none_of(step.caches.begin(), step.caches.end(), [&](const KvCache* cache) {
           return cache->layout().hidden_width > 0 && cache->layout().hidden_layer == layer + 1;
         });
}

}  // namespace baton
