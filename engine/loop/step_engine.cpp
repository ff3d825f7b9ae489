// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/loop/contexts.h"
#include "engine/loop/engine_loop.h"
#include "engine/loop/engine_parts.h"
#include "engine/loop/request_check.h"

namespace baton {
namespace {

/// If it throws, the model is released first: its weights lie in the backend's memory.
std::shared_ptr<EngineParts> make_parts(std::unique_ptr<Backend>& backend, std::shared_ptr<const Model>& model,
                                        const LocalEngineOptions& options) {
  try {
    return std::make_shared<EngineParts>(std::move(backend), std::move(model), options);
  } catch (...) {
    model.reset();
    throw;
  }
}

/// `reuse.history` then says whether the prompt may be measured.
void complete_auto(ReuseOptions& reuse, PlaceId place, const RelayMeasuring& measuring) {
  if (reuse.method->id != MethodId::automatic) return;
  measuring
      .with_calibration([&](const Calibration& now) {
        reuse.history = reuse.history && takes_segments(reuse) && !now.levels.levels.empty();
        return reuse.history ? now.history.levels_for(place, now.levels, reuse.tolerance) : now.levels;
      })
      .complete(reuse);
}

void resolve_layers(ReuseOptions& reuse, const RelayMeasuring& measuring, std::int32_t layers) {
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
    reuse.range = measuring.with_calibration(
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

/// Fills in what the calibration says. Throws EngineError when the method needs a layer range and the model has none.
void resolve(ReuseOptions& reuse, PlaceId place, const RelayMeasuring& measuring, std::int32_t layers) {
  complete_auto(reuse, place, measuring);
  if (decides(*reuse.method) && !takes_segments(reuse) && !reuse.range.given()) return;
  resolve_layers(reuse, measuring, layers);
  if (reuse.reuse <= 0.0) return;
  if (const double bound = max_reuse(reuse, layers); reuse.reuse > bound + 1e-6) {
    throw EngineError(EngineError::Kind::invalid,
                      fmt::format("reuse: method {} cannot reuse {:.3f} of the entries; expected at most {:.3f}, since "
                                  "its layers up to the choice are computed for every token",
                                  reuse.method->name, reuse.reuse, bound));
  }
}

std::shared_ptr<LocalEngine> open_on(std::unique_ptr<Backend> backend, const std::filesystem::path& path,
                                     const LocalEngineOptions& options) {
  auto model = open_model(*backend, path, options.model);
  if (!backend->info().host_memory) Forward(*backend, *model).rehearse();
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

}  // namespace

StepEngine::StepEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                       const LocalEngineOptions& options)
    : parts_(make_parts(backend, model, options)), thread_([parts = parts_] { EngineLoop(*parts).run(); }) {}

StepEngine::~StepEngine() {
  parts_->inbox.close();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();  // destroyed inside one of its own callbacks; the thread ends by itself
  } else {
    thread_.join();
  }
}

void StepEngine::read_vocabulary(const std::stop_token& stop) { parts_->masks.vocabulary(stop); }

RequestId StepEngine::submit(GenerationRequest request) {
  const EarlyId early = request.early;
  try {
    return add(std::move(request));
  } catch (...) {
    forget(early);
    throw;
  }
}

RequestId StepEngine::add(GenerationRequest request) {
  const Model& model = *parts_->model;
  check(request, model);
  std::int32_t length = 0;
  for (const PromptPart& part : request.prompt) length += static_cast<std::int32_t>(part.tokens.size());
  std::size_t longest = request.forced.size();
  for (const std::vector<TokenId>& choice : request.choices) longest = std::max(longest, choice.size());
  if (longest > 0) request.max_tokens = static_cast<std::int32_t>(longest) + 1;
  if (!request.choices.empty()) request.stop.clear();
  request.max_tokens = std::min(request.max_tokens, model.options.context - length);
  resolve(request.reuse, place_of(request.reader, request.prompt), parts_->measuring, model.config.layers);
  const std::int64_t bytes = bytes_for(*parts_, request, length + request.max_tokens);
  if (const std::int64_t budget = parts_->options.kv_budget_bytes; bytes > budget) {
    throw EngineError(
        EngineError::Kind::memory,
        fmt::format("the KV cache of {} prompt tokens and {} new tokens needs {} bytes; the budget is {} bytes", length,
                    request.max_tokens, bytes, budget));
  }
  std::shared_ptr<TokenMasks> masks = parts_->masks.of(request.constraint);
  const RequestId id = parts_->inbox.next_id();
  parts_->inbox.add(std::make_unique<Sequence>(id, std::move(request), model, std::move(masks)));
  return id;
}

void StepEngine::cancel(RequestId id) { parts_->inbox.cancel(id); }

EarlyId StepEngine::prepare(EarlyPrompt prompt) {
  check(prompt, *parts_->model);
  const PlaceId place = place_of(prompt.reader, prompt.parts);
  if (prompt.reuse.method->id == MethodId::verified)
    resolve(prompt.reuse, place, parts_->measuring, parts_->model->config.layers);
  else
    complete_auto(prompt.reuse, place, parts_->measuring);
  const EarlyId id = parts_->inbox.next_id();
  parts_->inbox.order(
      [id, prompt = std::move(prompt)](PrefillAhead& ahead) mutable { ahead.prepare(id, std::move(prompt)); });
  return id;
}

void StepEngine::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  check(parts, *parts_->model);
  parts_->inbox.order([id, parts = std::move(parts), complete](PrefillAhead& ahead) mutable {
    ahead.update(id, std::move(parts), complete);
  });
}

void StepEngine::forget(EarlyId id) { parts_->inbox.forget(id); }

std::shared_ptr<const Segment> StepEngine::exported_kv(const SegmentHandle& handle) const {
  struct Kept {
    std::shared_ptr<const EngineParts> parts;  // they own the segment's memory
    std::shared_ptr<const Segment> segment;
  };
  const SegmentStore& store = parts_->store;
  auto kept = std::make_shared<const Kept>(
      Kept{parts_, parts_->device.host_memory ? store.peek(handle) : store.exported_kv(handle)});
  if (!kept->segment) return nullptr;
  return {kept, kept->segment.get()};
}

const ModelText& StepEngine::text() const { return *parts_->model; }
const EngineInfo& StepEngine::info() const { return parts_->info; }

EngineStats StepEngine::stats() const {
  const bool orders = parts_->inbox.has_orders();  // first: an order that was taken is counted already
  EngineStats stats = parts_->counters.stats();
  stats.busy_ahead = stats.busy_ahead || orders;
  stats.measuring = parts_->measuring.measuring();
  stats.segments = parts_->store.stats();
  stats.anchors = parts_->anchors.store().stats();
  return stats;
}

const Model& StepEngine::model() const { return *parts_->model; }
AnchorStore& StepEngine::anchors() { return parts_->anchors.store(); }
std::shared_ptr<const Segment> StepEngine::segment(const SegmentHandle& handle) const {
  return parts_->store.peek(handle);
}

Calibration StepEngine::calibration() const { return parts_->measuring.calibration(); }
void StepEngine::set_calibration(Calibration calibration) { parts_->measuring.set_calibration(std::move(calibration)); }
std::optional<RelayHistory> StepEngine::changed_history() { return parts_->measuring.changed_history(); }

std::vector<std::byte> StepEngine::context_bytes(const ContextHandle& context) {
  return parts_->inbox.on_thread<std::vector<std::byte>>([this, context] { return bytes_of(*context, parts_->store); })
      .value_or(std::vector<std::byte>());
}

ContextHandle StepEngine::make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops,
                                       std::vector<std::byte> bytes) {
  KvLayout layout = parts_->model->kv_layout();
  layout.raw_keys = true;
  auto context = std::make_shared<KeptContext>();
  context->tokens = std::move(tokens);
  context->exact = exact;
  context->hops = hops;
  return parts_->inbox
      .on_thread<ContextHandle>([this, layout, context, bytes = std::move(bytes)] {
        return with_bytes(context, layout, bytes, *parts_->backend, parts_->store);
      })
      .value_or(nullptr);
}

void StepEngine::park() {
  parts_->inbox.on_thread<bool>([this] {
    parts_->store.park();
    return try_to([&] { parts_->backend->wait(); });  // if the device has failed, its requests report the error
  });
}

std::shared_ptr<LocalEngine> open_engine(const std::filesystem::path& path, const LocalEngineOptions& options) {
  auto backend = make_backend({options.device, options.threads});
  if (options.device != "auto" || backend->info().host_memory) return open_on(std::move(backend), path, options);
  try {
    return open_on(std::move(backend), path, options);
  } catch (const BackendError& error) {  // most often, the model does not fit the device's memory
    return open_on(make_backend({"cpu", options.threads, error.what()}), path, options);
  }
}

}  // namespace baton
