// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/prompt_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/loop/step_plan.h"

namespace baton {

PromptProgress::PromptProgress(const GenerationRequest& request, GenerationResult& result, std::int32_t length,
                               std::int32_t layers)
    : request_(request), result_(result), length_(length), layers_(layers) {
  result_.prompt_tokens = length_;
  result_.kv_entries = static_cast<std::int64_t>(length_) * layers_;
}

void PromptProgress::start(PromptAssembly assembly, const PrefillTimes& times, KvCache& cache) {
  assembly_.emplace(std::move(assembly));
  sparse_ = sparse_layers_of(assembly_->schedule, layers_);
  detection_ends_.assign(assembly_->schedule.detections.size(), 0);
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const std::int32_t detection = rows()[i].path.detection;
    if (detection >= 0) detection_ends_[static_cast<std::size_t>(detection)] = i + 1;
  }
  for (std::size_t d = 0; d < detection_ends_.size(); ++d) {  // with the readers behind them
    std::size_t& end = detection_ends_[d];
    while (end < rows().size() && rows()[end].position < assembly_->schedule.detections[d].readers_end) ++end;
  }
  computed_.assign(static_cast<std::size_t>(length_), 0);
  recomputed_.assign(static_cast<std::size_t>(length_), false);
  result_.prefill = times;
  result_.hops = assembly_->hops;
  if (assembly_->hops > 0) result_.expected_nats = assembly_->decision().predicted;
  for (std::int32_t at = 0; at < length_; ++at) {
    if (!assembly_->computed(at)) continue;
    computed_[static_cast<std::size_t>(at)] = layers_;
    recomputed_[static_cast<std::size_t>(at)] = true;
    if (assembly_->ahead(at)) result_.kv_ahead += layers_;
  }
  cache.commit(rows().empty() ? length_ : rows().front().position);  // positions before the first row hold KV
}

void PromptProgress::drop() {
  assembly_.reset();
  next_row_ = 0;
  ended_ = false;
}

std::int32_t PromptProgress::add_rows(std::int32_t share, std::span<const TokenId> tokens, KvCache& cache,
                                      StepRows& step) {
  const std::int32_t index = step.add_cache(&cache);
  std::int32_t from = -1;  // the schedule's detection that the newest one of the step maps to
  std::size_t at = next_row_;
  std::size_t whole = next_row_;  // all rows of a detection run in one step, with the rows between them
  for (; at < rows().size() && (static_cast<std::int32_t>(at - next_row_) < share || at < whole); ++at) {
    const ScheduledRow& row = rows()[at];
    if (row.path.detection >= 0) whole = std::max(whole, detection_ends_[static_cast<std::size_t>(row.path.detection)]);
    step.add_row(index, row.position, tokens[static_cast<std::size_t>(row.position)]);
    RowPath path = row.path;
    if (path.detection >= 0) {
      if (path.detection != from) {
        from = path.detection;
        step.detections.push_back(assembly_->schedule.detections[static_cast<std::size_t>(from)]);
      }
      path.detection = static_cast<std::int32_t>(step.detections.size()) - 1;
    }
    step.path.push_back(path);
  }
  return static_cast<std::int32_t>(at - next_row_);
}

void PromptProgress::commit(std::span<const RowPath> paths, const StepTimes& times, KvCache& cache) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const ScheduledRow& row = rows()[next_row_ + i];
    const auto at = static_cast<std::size_t>(row.position);
    computed_[at] = paths[i].computed();
    const bool grouped = row.path.anew && paths[i].computed() < layers_;  // droidspeak chooses no tokens
    recomputed_[at] = !grouped && (row.path.detection < 0 || paths[i].leave > row.path.leave);
  }
  next_row_ += paths.size();
  cache.commit(is_complete() ? length_ : rows()[next_row_].position);

  PrefillTimes& phases = result_.prefill;
  for (std::int32_t layer = 0; layer < layers_; ++layer) {
    (layer < sparse_.begin ? phases.full_layers
     : layer < sparse_.end ? phases.sparse_layers
                           : phases.tail) += times.layer[static_cast<std::size_t>(layer)];
  }
  phases.copy += times.before_layer;
  phases.detect += times.detect;
  phases.tail += times.other;
}

bool PromptProgress::fall_back(KvCache& cache) {
  if (ended_ || !is_complete() || !assembly_->schedule.guard) return false;
  result_.guard_left = assembly_->schedule.guard->left;
  const float bound = assembly_->decision().max_left;
  if (bound > 0.0f) result_.guard_nats = result_.guard_left * assembly_->decision().tolerance / bound;
  if (bound < 0.0f || result_.guard_left <= bound) return false;
  assembly_->make_exact(length_, layers_,
                        fmt::format("the guard measured a change of {:.2g}; at most {:.2g} is expected to stay within "
                                    "{:.2g} nats",
                                    result_.guard_left, bound, assembly_->decision().tolerance));
  sparse_ = sparse_layers_of(assembly_->schedule, layers_);
  detection_ends_.clear();
  next_row_ = 0;
  result_.hops = 0;
  cache.truncate(rows().front().position);
  return true;
}

void PromptProgress::on_step_begin(Clock::time_point now, Clock::time_point submitted) {
  if (first_step_ != Clock::time_point{}) return;
  first_step_ = now;
  result_.queue_ms = milliseconds(now - submitted);
}

void PromptProgress::report(Clock::time_point now, int interval_ms, const KvCache& cache) {
  if (is_complete() || next_row_ == 0 || !request_.callbacks.on_prefill_progress) return;
  if (now - std::max(reported_, first_step_) < std::chrono::milliseconds(interval_ms)) return;
  reported_ = now;
  request_.callbacks.on_prefill_progress(cache.length(), length_);
}

bool PromptProgress::end() {
  if (ended_) return false;
  ended_ = true;
  prefilled_at_ = Clock::now();
  result_.prefill_ms = milliseconds(prefilled_at_ - first_step_);
  result_.kv_computed = std::accumulate(computed_.begin(), computed_.end(), std::int64_t{0});
  assembly_->account(computed_, recomputed_, layers_);
  result_.uses = assembly_->uses;
  result_.continued_tokens = assembly_->recordable();
  assembly_->kv().release();
  return true;
}

double PromptProgress::deadline(double row_ms, Clock::time_point submitted) const {
  return prompt_deadline(milliseconds(submitted.time_since_epoch()), row_ms * static_cast<double>(rows().size()));
}

}  // namespace baton
