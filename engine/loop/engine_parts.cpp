// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/engine_parts.h"

#include <algorithm>
#include <numeric>

#include "engine/base/system/process.h"
#include "engine/registry.h"

namespace baton {
namespace {

// Only steps of many rows show the time per row; a step of few rows takes as long as reading the weights.
constexpr double kMany = 128.0;

double mixed(double known, double measured) {
  constexpr double kNewest = 0.2;
  return known > 0.0 ? (1.0 - kNewest) * known + kNewest * measured : measured;
}

constexpr std::int64_t kMinBudget = std::int64_t{16} << 20;  // of KV, however little a container leaves
// RoPE angles computed when the engine opens, before a request waits. On the CPU more take little of a prompt's time,
// and 16,384 positions took 32 MB of Gemma 3 270M's memory.
constexpr std::int32_t kUsualPositionsCpu = 1024, kUsualPositionsGpu = 16384;

std::int64_t available_memory() {
  constexpr std::int64_t kUnknown = std::int64_t{8} << 30;
  const std::int64_t bytes = machine_memory().available_bytes;
  return bytes > 0 ? bytes : kUnknown;
}

/// Fills in the defaults that depend on the device.
LocalEngineOptions with_defaults(LocalEngineOptions options, const BackendInfo& device) {
  if (options.slowdown <= 0.0) options.slowdown = device.name == "cpu" ? kSlowdownCpu : kSlowdownGpu;
  options.token_by_token |= options.max_draft == 0;
  if (options.max_draft < 0) options.max_draft = device.name == "cpu" ? kMaxDraftCpu : 0;
  if (options.max_prefill_rows <= 0)
    options.max_prefill_rows = device.host_memory ? options.max_step_rows : kPrefillRowsGpu;
  if (options.kv_budget_bytes <= 0)
    options.kv_budget_bytes =
        std::max((device.free_bytes > 0 ? device.free_bytes : available_memory()) / 2, kMinBudget);
  if (options.segment_budget_bytes <= 0) options.segment_budget_bytes = options.kv_budget_bytes / 3;
  if (options.host_segment_budget_bytes == 0) options.host_segment_budget_bytes = available_memory() / 4;
  if (device.host_memory || options.host_segment_budget_bytes < 0) options.host_segment_budget_bytes = 0;
  if (options.method_budget_bytes <= 0) options.method_budget_bytes = options.segment_budget_bytes / 2;
  return options;
}

}  // namespace

void ReuseCosts::on_step(std::span<const RowPath> paths, const StepTimes& times) {
  std::int64_t computed = 0;
  for (const RowPath& path : paths) computed += path.computed();
  if (computed == 0) return;
  const double all = std::accumulate(times.layer.begin(), times.layer.end(), times.detect + times.other);
  const double rows = static_cast<double>(computed) / static_cast<double>(times.layer.size());
  const double measured = all / rows;
  if (measured < row_ms_) row_ms_ = measured;
  if (rows >= kMany || row_ms_ == 0.0) row_ms_ = mixed(row_ms_, measured);
}

EngineStats EngineCounters::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void EngineCounters::set_busy_ahead() {
  const std::lock_guard lock(mutex_);
  stats_.busy_ahead = true;
}

void EngineCounters::set_kv(std::int64_t bytes, bool busy_ahead) {
  const std::lock_guard lock(mutex_);
  stats_.busy_ahead = busy_ahead;
  stats_.kv_bytes = bytes;
  stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, bytes);
}

void EngineCounters::add_step(std::int64_t rows, std::int32_t rows_ahead, std::int32_t spare_rows) {
  const std::lock_guard lock(mutex_);
  ++stats_.steps;
  stats_.rows += rows;
  stats_.rows_ahead += rows_ahead;
  stats_.spare_rows = spare_rows;
}

void EngineCounters::add_measured(double ms) {
  const std::lock_guard lock(mutex_);
  stats_.measured_ms += ms;
}

EngineParts::EngineParts(std::unique_ptr<Backend> with_backend, std::shared_ptr<const Model> with_model,
                         const LocalEngineOptions& with_options)
    : backend(std::move(with_backend)),
      model(std::move(with_model)),
      device(backend->info()),
      info{device.name, device.device, device.threads, model->options.context, kv_format_of(*model), device.fallback},
      options(with_defaults(with_options, device)),
      masks(*model),
      measuring(model->config.vocabulary),
      counters(static_cast<std::int64_t>(model->weights.bytes)),
      store(options.segment_budget_bytes, options.host_segment_budget_bytes),
      states(methods(), *backend, *model, {options.method_budget_bytes}),
      forward(*backend, *model),
      prefixes(store, model->kv_layout().state_bytes > 0),
      spare(options.slowdown, options.max_step_rows),
      drafts(kMaxDraftRows),
      ahead(*backend, *model, forward.angles(), prefixes, spare, options) {
  const std::int32_t usual = device.host_memory ? kUsualPositionsCpu : kUsualPositionsGpu;
  forward.angles().reserve(std::min(model->options.context, usual));
  states.on_bytes([this](std::int64_t bytes) { store.charge(bytes); });
}

std::int64_t kv_bytes(const SequenceList& running) {
  std::int64_t bytes = 0;
  for (const auto& sequence : running) bytes += static_cast<std::int64_t>(sequence->cache_bytes());
  return bytes;
}

std::int64_t free_bytes(const EngineParts& parts) {
  if (!parts.work.waiting.empty()) return 0;
  return parts.options.kv_budget_bytes - kv_bytes(parts.running) - parts.ahead.bytes();
}

std::int64_t bytes_for(const EngineParts& parts, const GenerationRequest& request, const ReuseDecision& decision,
                       std::int32_t positions) {
  const KvLayout layout = layout_for(request, *parts.model, decision.range);
  return static_cast<std::int64_t>(KvCache::bytes_for(*parts.backend, layout, positions));
}

std::vector<LivePrefix> live_prefixes(const SequenceList& running) {
  std::vector<LivePrefix> live;
  for (const auto& sequence : running) {
    if (const LivePrefix one = live_prefix(*sequence); one.cache != nullptr) live.push_back(one);
  }
  return live;
}

bool uses_store(const EngineParts& parts, const GenerationRequest& request) {
  return parts.disk && (parts.disk_for_all || request.reuse.store) && !has_imported_kv(request);
}

bool has_work_ahead(const EngineParts& parts) {
  return parts.ahead.has_work(free_bytes(parts), live_prefixes(parts.running));
}

}  // namespace baton
