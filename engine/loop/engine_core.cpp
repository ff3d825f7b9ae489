// SPDX-License-Identifier: Apache-2.0
// The functions that any thread may call: requests, early prompts, settings, statistics.
#include "engine/loop/engine_core.h"

#include <fmt/format.h>

#include "engine/loop/contexts.h"
#include "engine/loop/defaults.h"
#include "engine/loop/request_check.h"

namespace baton {
namespace {

// RoPE angles computed when the engine opens, before a request waits. On the CPU more take little of a prompt's time,
// and 16,384 positions took 32 MB of Gemma 3 270M's memory.
constexpr std::int32_t kUsualPositionsCpu = 1024, kUsualPositionsGpu = 16384;

}  // namespace

EngineCore::EngineCore(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                       const LocalEngineOptions& options)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      device_(backend_->info()),
      info_{device_.name,          device_.device,  device_.threads, model_->options.context,
            kv_format_of(*model_), device_.fallback},
      options_(with_defaults(options, device_)),
      forward_(*backend_, *model_),
      masks_(*model_),
      measuring_(model_->config.vocabulary),
      store_(options_.segment_budget_bytes, options_.host_segment_budget_bytes),
      prefixes_(store_),
      anchors_(*backend_, *model_, options_.anchor_budget_bytes),
      corrector_(*backend_, *model_),
      spare_(options_.slowdown, options_.max_step_rows),
      drafts_(kMaxDraftRows),
      ahead_(*backend_, *model_, forward_.angles(), prefixes_, spare_, options_) {
  const std::int32_t usual = device_.host_memory ? kUsualPositionsCpu : kUsualPositionsGpu;
  forward_.angles().reserve(std::min(model_->options.context, usual));
  stats_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
  anchors_.store().on_bytes([this](std::int64_t bytes) { store_.charge(bytes); });
}

RequestId EngineCore::submit(GenerationRequest request) {
  check(request, *model_);
  std::int32_t length = 0;
  for (const PromptPart& part : request.prompt) length += static_cast<std::int32_t>(part.tokens.size());
  std::size_t longest = request.forced.size();
  for (const std::vector<TokenId>& choice : request.choices) longest = std::max(longest, choice.size());
  if (longest > 0) request.max_tokens = static_cast<std::int32_t>(longest) + 1;
  if (!request.choices.empty()) request.stop.clear();
  request.max_tokens = std::min(request.max_tokens, model_->options.context - length);
  resolve(request.reuse, place_of(request.reader, request.prompt));
  const auto bytes = static_cast<std::int64_t>(bytes_for(request, length + request.max_tokens));
  if (bytes > options_.kv_budget_bytes) {
    throw EngineError(
        EngineError::Kind::memory,
        fmt::format("the KV cache of {} prompt tokens and {} new tokens needs {} bytes; the budget is {} bytes", length,
                    request.max_tokens, bytes, options_.kv_budget_bytes));
  }
  std::shared_ptr<TokenMasks> masks = masks_.of(request.constraint);
  const std::lock_guard lock(mutex_);
  if (stopping_) throw EngineError(EngineError::Kind::invalid, "the engine is closing and accepts no more requests");
  const RequestId id = ++last_id_;
  incoming_.push_back(std::make_unique<Sequence>(id, std::move(request), *model_, std::move(masks)));
  wake_.notify_one();
  return id;
}

void EngineCore::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_one();
}

EarlyId EngineCore::prepare(EarlyPrompt prompt) {
  check(prompt, *model_);
  const PlaceId place = place_of(prompt.reader, prompt.parts);
  if (prompt.reuse.method->id == MethodId::verified)
    resolve(prompt.reuse, place);
  else
    complete_auto(prompt.reuse, place);
  const std::lock_guard lock(mutex_);
  const EarlyId id = ++last_id_;
  orders_.push_back(
      [id, prompt = std::move(prompt)](PrefillAhead& ahead) mutable { ahead.prepare(id, std::move(prompt)); });
  wake_.notify_one();
  return id;
}

void EngineCore::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  check(parts, *model_);
  const std::lock_guard lock(mutex_);
  orders_.push_back([id, parts = std::move(parts), complete](PrefillAhead& ahead) mutable {
    ahead.update(id, std::move(parts), complete);
  });
  wake_.notify_one();
}

void EngineCore::forget(EarlyId id) noexcept {
  const std::lock_guard lock(mutex_);
  if (!try_to([&] { orders_.push_back([id](PrefillAhead& ahead) { ahead.forget(id); }); })) forget_all_ = true;
  wake_.notify_one();
}

void EngineCore::park() {
  on_thread<bool>([this] {
    store_.park();
    return try_to([&] { backend_->wait(); });  // where the device has failed, its requests will report the error
  });
}

std::vector<std::byte> EngineCore::context_bytes(const ContextHandle& context) {
  return on_thread<std::vector<std::byte>>([this, context] { return bytes_of(*context, store_); })
      .value_or(std::vector<std::byte>());
}

ContextHandle EngineCore::make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops,
                                       std::vector<std::byte> bytes) {
  KvLayout layout = model_->kv_layout();
  layout.raw_keys = true;
  auto context = std::make_shared<KeptContext>();
  context->tokens = std::move(tokens);
  context->exact = exact;
  context->hops = hops;
  return on_thread<ContextHandle>([this, layout, context, bytes = std::move(bytes)] {
           return with_bytes(context, layout, bytes, *backend_, store_);
         })
      .value_or(nullptr);
}

void EngineCore::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_one();
}

EngineStats EngineCore::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.busy_ahead = stats.busy_ahead || !orders_.empty();
  stats.measuring = measuring_.measuring();
  stats.segments = store_.stats();
  stats.anchors = anchors_.store().stats();
  return stats;
}

std::shared_ptr<const Segment> EngineCore::exported_kv(const SegmentHandle& handle) const {
  return device_.host_memory ? store_.peek(handle) : store_.exported_kv(handle);
}

/// `reuse.history` then says whether the prompt may be measured.
void EngineCore::complete_auto(ReuseOptions& reuse, PlaceId place) const {
  if (reuse.method->id != MethodId::automatic) return;
  measuring_
      .with_calibration([&](const Calibration& now) {
        reuse.history = reuse.history && takes_segments(reuse) && !now.levels.levels.empty();
        return reuse.history ? now.history.levels_for(place, now.levels, reuse.tolerance) : now.levels;
      })
      .complete(reuse);
}

void EngineCore::resolve(ReuseOptions& reuse, PlaceId place) const {
  complete_auto(reuse, place);
  if (decides(*reuse.method) && !takes_segments(reuse) && !reuse.range.given()) return;
  resolve_layers(reuse);
  if (reuse.reuse <= 0.0) return;
  if (const double bound = max_reuse(reuse, model_->config.layers); reuse.reuse > bound + 1e-6) {
    throw EngineError(EngineError::Kind::invalid,
                      fmt::format("reuse: method {} cannot reuse {:.3f} of the entries; expected at most {:.3f}, since "
                                  "its layers up to the choice are computed for every token",
                                  reuse.method->name, reuse.reuse, bound));
  }
}

void EngineCore::resolve_layers(ReuseOptions& reuse) const {
  const std::int32_t layers = model_->config.layers;
  if (reuse.method->layers == Method::Layers::group) {
    if (reuse.range.is_group(layers)) return;
    throw EngineError(
        EngineError::Kind::invalid,
        fmt::format("reuse: {} needs the group of layers that readers recompute; expected start < end < {}, "
                    "found {} to {}",
                    reuse.method->name, layers, reuse.range.start, reuse.range.end));
  }
  const bool unused = reuse.method->layers == Method::Layers::none && reuse.range.is_group(layers);
  if (reuse.range.given() && !reuse.range.valid(layers) && !unused) {
    throw EngineError(EngineError::Kind::invalid,
                      fmt::format("reuse: invalid layers: expected 0 <= start < detect < end < {}, found start {}, "
                                  "detect {}, end {}",
                                  layers, reuse.range.start, reuse.range.detect, reuse.range.end));
  }
  if (!reuse.range.valid(layers)) {
    reuse.range = measuring_.with_calibration(
        [&](const Calibration& now) { return reuse.paper_layers ? now.paper_range : now.range; });
  }
  if (reuse.range.valid(layers)) return;
  if (reuse.method->layers == Method::Layers::detection) {
    throw EngineError(EngineError::Kind::invalid,
                      fmt::format("reuse: {} needs the model's layer range, and the model has not been profiled",
                                  reuse.method->name));
  }
  reuse.range = {};
}

std::size_t EngineCore::bytes_for(const GenerationRequest& request, std::int32_t positions) const {
  return KvCache::bytes_for(*backend_, layout_for(request, *model_, request.reuse.range), positions);
}

}  // namespace baton
