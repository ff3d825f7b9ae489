// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_engine.h"

#include "engine/backend/make_backend.h"
#include "engine/loop/engine_core.h"

namespace baton {
namespace {

/// Where it throws, the model is released first: its weights lie in the backend's memory.
std::shared_ptr<EngineCore> make_core(std::unique_ptr<Backend>& backend, std::shared_ptr<const Model>& model,
                                      const LocalEngineOptions& options) {
  try {
    return std::make_shared<EngineCore>(std::move(backend), std::move(model), options);
  } catch (...) {
    model.reset();
    throw;
  }
}

}  // namespace

StepEngine::StepEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                       const LocalEngineOptions& options)
    : core_(make_core(backend, model, options)), thread_([core = core_] { core->loop(); }) {}

StepEngine::~StepEngine() {
  core_->stop();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();  // destroyed inside one of its own callbacks; the thread ends by itself
  } else {
    thread_.join();
  }
}

void StepEngine::read_vocabulary(const std::stop_token& stop) { core_->read_vocabulary(stop); }

RequestId StepEngine::submit(GenerationRequest request) {
  const EarlyId early = request.early;
  try {
    return core_->submit(std::move(request));
  } catch (...) {
    core_->forget(early);
    throw;
  }
}
void StepEngine::cancel(RequestId id) { core_->cancel(id); }
EarlyId StepEngine::prepare(EarlyPrompt prompt) { return core_->prepare(std::move(prompt)); }
void StepEngine::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  core_->update(id, std::move(parts), complete);
}
void StepEngine::forget(EarlyId id) { core_->forget(id); }
void StepEngine::park() { core_->park(); }
std::vector<std::byte> StepEngine::context_bytes(const ContextHandle& context) { return core_->context_bytes(context); }
ContextHandle StepEngine::make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops,
                                       std::vector<std::byte> bytes) {
  return core_->make_context(std::move(tokens), exact, hops, std::move(bytes));
}
const Model& StepEngine::model() const { return core_->model(); }
const ModelText& StepEngine::text() const { return core_->model(); }
const EngineInfo& StepEngine::info() const { return core_->info(); }
EngineStats StepEngine::stats() const { return core_->stats(); }
AnchorStore& StepEngine::anchors() { return core_->anchors(); }
std::shared_ptr<const Segment> StepEngine::segment(const SegmentHandle& handle) const { return core_->segment(handle); }
std::shared_ptr<const Segment> StepEngine::exported_kv(const SegmentHandle& handle) const {
  struct Kept {
    std::shared_ptr<const EngineCore> core;  // keeps alive the core, which owns the segment's memory
    std::shared_ptr<const Segment> segment;
  };
  auto kept = std::make_shared<const Kept>(Kept{core_, core_->exported_kv(handle)});
  if (!kept->segment) return nullptr;
  return {kept, kept->segment.get()};
}
Calibration StepEngine::calibration() const { return core_->measuring().calibration(); }
void StepEngine::set_calibration(Calibration calibration) {
  core_->measuring().set_calibration(std::move(calibration));
}
std::optional<RelayHistory> StepEngine::changed_history() { return core_->measuring().changed_history(); }

namespace {

std::shared_ptr<LocalEngine> open_on(std::unique_ptr<Backend> backend, const std::filesystem::path& path,
                                     const LocalEngineOptions& options) {
  auto model = open_model(*backend, path, options.model);
  if (!backend->info().host_memory) Forward(*backend, *model).rehearse();
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

}  // namespace

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
