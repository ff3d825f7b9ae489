// SPDX-License-Identifier: Apache-2.0
// EngineLoop: what an engine's thread does. It takes what has come in, begins requests, and runs steps. Nothing that a
// request or a shortage of memory causes ends the thread (docs/decisions/memory.md).
// StepEngine: checks what callers hand in, and puts it into the inbox of this thread.
#include "engine/loop/step_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/loop/admission.h"
#include "engine/loop/engine_parts.h"
#include "engine/loop/inbox.h"
#include "engine/loop/kv_lookup.h"
#include "engine/loop/request_end.h"
#include "engine/loop/step_runner.h"

namespace baton {

class EngineLoop {
 public:
  explicit EngineLoop(EngineParts& parts)
      : parts_(parts), end_(parts), runner_(parts, end_), admission_(parts, end_, runner_) {}

  /// Runs until the inbox is closed. Open requests then finish as cancelled, and all KV is freed.
  void run() noexcept;

 private:
  bool wait_for_work();
  void apply_cancels();
  void recover(const char* error) noexcept;

  EngineParts& parts_;
  RequestEnd end_;
  StepRunner runner_;
  Admission admission_;
};

void EngineLoop::run() noexcept {
  for (bool open = true; open;) {
    try {
      open = wait_for_work();
      if (!open) break;
      apply_cancels();
      admission_.admit();
      admission_.admit_probe();
      // {}: has_work() is asked only when nothing runs, so there are no live prefixes. The same holds below.
      const bool rows = !parts_.running.empty() || parts_.ahead.has_work(free_bytes(parts_), {});
      if (rows && runner_.step()) admission_.begin_checks();
    } catch (const std::exception& error) {
      recover(message_of(error));
    } catch (...) {  // a host's callback may throw anything
      recover(kCallbackThrew);
    }
  }
  parts_.work.orders.clear();  // callers that wait for an order return
  parts_.ahead.clear();
  for (SequenceList* list : {&parts_.running, &parts_.work.waiting, &parts_.probes}) {
    while (!list->empty()) end_.end(*list, list->begin(), FinishReason::cancelled, "");
  }
  parts_.prefixes.clear();
  parts_.disk.reset();  // it still writes KV of segments, so it ends before them
  parts_.store.close();
}

bool EngineLoop::wait_for_work() {
  const auto busy = [this] {
    return !parts_.running.empty() || !parts_.probes.empty() || parts_.ahead.has_work(free_bytes(parts_), {});
  };
  if (!parts_.inbox.wait(parts_.work, busy, [this] { parts_.counters.set_busy_ahead(); })) return false;
  bool forget_all = parts_.work.forget_all;
  for (Inbox::Order& order : parts_.work.orders) {
    if (!try_to([&] { order(parts_.ahead); })) forget_all = true;
  }
  parts_.work.orders.clear();
  if (forget_all) parts_.ahead.clear();
  try_to([&] { parts_.store.settle(); });  // methods may have charged their states to the budget since the last step
  end_.count_kv();
  return true;
}

void EngineLoop::apply_cancels() {
  std::vector<RequestId>& cancelling = parts_.work.cancelling;
  while (!cancelling.empty()) {
    const RequestId id = cancelling.back();
    cancelling.pop_back();
    for (SequenceList* list : {&parts_.running, &parts_.work.waiting}) {
      const auto found = std::find_if(list->begin(), list->end(), [&](const auto& s) { return s->id() == id; });
      if (found != list->end()) end_.end(*list, found, FinishReason::cancelled, "");
    }
  }
}

/// Ends the requests that a failure may have touched: all that had begun. If none had begun, the first one that waits
/// ends, so that a lasting shortage ends requests one by one.
void EngineLoop::recover(const char* error) noexcept {
  SequenceList& running = parts_.running;
  SequenceList& waiting = parts_.work.waiting;
  parts_.ahead.clear();
  parts_.copied.clear();
  const auto begun = [](const auto& one) { return one->cache_bytes() > 0; };
  bool any = !running.empty();
  while (!running.empty()) end_.end(running, running.begin(), FinishReason::error, error);
  for (auto at = waiting.end(); (at = std::find_if(waiting.begin(), waiting.end(), begun)) != waiting.end();) {
    any = true;
    end_.end(waiting, at, FinishReason::error, error);
  }
  if (any) return;
  if (!waiting.empty()) return end_.end(waiting, waiting.begin(), FinishReason::error, error);
  // Not even the first request could be moved to those that wait.
  if (std::unique_ptr<Sequence> first = parts_.inbox.take_first())
    end_.end(std::move(first), FinishReason::error, error);
}

namespace {

[[noreturn]] void invalid(const std::string& message) { throw EngineError(EngineError::Kind::invalid, message); }

void check_tokens(const char* what, std::span<const TokenId> tokens, const Model& model) {
  for (const TokenId id : tokens) {
    if (id < 0 || id >= model.config.vocabulary)
      invalid(fmt::format("{}: token id {} is outside the vocabulary of {}", what, id, model.config.vocabulary));
  }
}

void check_method(const ReuseOptions& reuse) {
  if (const std::string problem = problem_of(reuse); !problem.empty()) invalid(problem);
}

// Requests are checked at the engine's border. Each check throws EngineError that says what was found and what was
// expected.

void check(const std::vector<EarlyPart>& parts, const Model& model) {
  for (const EarlyPart& part : parts) check_tokens("early prompt", part.tokens, model);
}

void check(const EarlyPrompt& prompt, const Model& model) {
  check(prompt.parts, model);
  check_method(prompt.reuse);
  if (prompt.longest < 1)
    invalid(fmt::format("early prompt: longest is {}; expected at least 1 token", prompt.longest));
  if (!computes_ahead(*prompt.reuse.method) && (prompt.reuse.record || takes_segments(prompt.reuse)))
    invalid(
        "early prompt: only exact KV can be computed ahead; expected method full, prefix or lockstep, without record, "
        "or auto");
}

void check(const GenerationRequest& request, const Model& model) {
  std::int64_t length = 0;
  for (const PromptPart& part : request.prompt) {
    length += static_cast<std::int64_t>(part.tokens.size());
    check_tokens("prompt", part.tokens, model);
  }
  if (length == 0) invalid("the prompt has no tokens; expected at least 1");
  if (request.max_tokens < 1)
    invalid(fmt::format("max_tokens: {} is too small; expected at least 1", request.max_tokens));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) invalid("stop: found an empty string; expected at least 1 byte in each");
  }
  if (request.constraint && !request.stop.empty())
    invalid("a constraint excludes stop strings, which could end the answer before it is whole; found both");
  if (const std::string problem = request.sampling.problem(); !problem.empty()) invalid(problem);
  check_method(request.reuse);
  check_tokens("forced", request.forced, model);
  const std::int32_t context = model.options.context;
  for (const std::vector<TokenId>& choice : request.choices) {
    if (choice.empty()) invalid("choices: found one without tokens; expected at least 1 token in each");
    check_tokens("choices", choice, model);
    if (const auto needed = length + static_cast<std::int64_t>(choice.size()) + 1; needed > context) {
      throw EngineError(EngineError::Kind::too_long,
                        fmt::format("the prompt has {} tokens and a choice {}; the context of {} leaves room for {}",
                                    length, choice.size(), context, context - length - 1));
    }
  }
  if (request.constraint && !request.choices.empty()) invalid("choices exclude a constraint; found both");
  if (request.thinking && (request.constraint || !request.choices.empty() || !request.stop.empty()))
    invalid("thinking excludes a constraint, choices and stop strings; found one of these");
  if (request.thinking && request.thinking->end.empty()) invalid("thinking: the marker of its end is empty");
  if (length + 1 > context) {
    throw EngineError(
        EngineError::Kind::too_long,
        fmt::format("the prompt has {} tokens; the context of {} leaves room for {}", length, context, context - 1));
  }
}

/// Makes the record of an engine's parts. If that throws, the model is released before the backend, because its weights
/// lie in the backend's memory.
std::shared_ptr<EngineParts> make_parts(std::unique_ptr<Backend>& backend, std::shared_ptr<const Model>& model,
                                        const LocalEngineOptions& options) {
  try {
    return std::make_shared<EngineParts>(std::move(backend), std::move(model), options);
  } catch (...) {
    model.reset();
    throw;
  }
}

/// States of recurrent layers stand for all tokens before a position: they belong to no text, and cannot be placed.
constexpr const char* kRecurrent = "its model has recurrent layers, whose state cannot be handed over";

bool is_recurrent(const EngineParts& parts) { return parts.model->kv_layout().state_bytes > 0; }

/// Returns the decision, or an exact one if the prompt would compare values in a layer that stores none and reads those
/// of another layer. Throws EngineError if the request names that layer.
ReuseDecision with_values(ReuseDecision decision, const ReuseOptions& reuse, const ModelConfig& config) {
  const LayerRange& range = decision.range;
  if (!takes_segments(reuse, decision) || !range.valid(config.layers) || config.stores_kv(range.detect))
    return decision;
  const std::string why = fmt::format("layer {} has no keys and values to compare, it reads those of layer {}",
                                      range.detect, config.kv_layer(range.detect));
  if (reuse.range.given())
    throw EngineError(EngineError::Kind::invalid, fmt::format("reuse: {}; expected another layer for detect", why));
  return exact_because(reuse, why);
}

/// Calls baton::decide() with the engine's calibration.
ReuseDecision decide_now(const ReuseOptions& reuse, PlaceId place, const EngineParts& parts) {
  if (is_recurrent(parts) && takes_segments(reuse)) return exact_because(reuse, kRecurrent);
  const ModelConfig& config = parts.model->config;
  try {
    return with_values(parts.measuring.with_calibration(
                           [&](const Calibration& now) { return decide(reuse, now, place, config.layers); }),
                       reuse, config);
  } catch (const std::invalid_argument& error) {
    throw EngineError(EngineError::Kind::invalid, error.what());
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
  if (is_recurrent(*parts_)) request.reuse.record = false;
  ReuseDecision decision = decide_now(request.reuse, place_of(request.reader, request.prompt), *parts_);
  const std::int64_t bytes = bytes_for(*parts_, request, decision, length + request.max_tokens);
  if (const std::int64_t budget = parts_->options.kv_budget_bytes; bytes > budget) {
    throw EngineError(
        EngineError::Kind::over_budget,
        fmt::format("the KV cache of {} prompt tokens and {} new tokens needs {} bytes; the budget is {} bytes", length,
                    request.max_tokens, bytes, budget));
  }
  std::shared_ptr<TokenMasks> masks = parts_->masks.of(request.constraint);
  const RequestId id = parts_->inbox.next_id();
  parts_->inbox.add(std::make_unique<Sequence>(id, std::move(request), std::move(decision), model, std::move(masks)));
  return id;
}

void StepEngine::cancel(RequestId id) { parts_->inbox.cancel(id); }

EarlyId StepEngine::prepare(EarlyPrompt prompt) {
  check(prompt, *parts_->model);
  const PlaceId place = place_of(prompt.reader, prompt.parts);
  const bool recurrent = is_recurrent(*parts_);
  if (recurrent) prompt.reuse.record = false;
  ReuseDecision decision = recurrent || may_begin_tentatively(*prompt.reuse.method)
                               ? decide_now(prompt.reuse, place, *parts_)
                               : parts_->measuring.with_calibration(
                                     [&](const Calibration& now) { return decide_early(prompt.reuse, now, place); });
  const EarlyId id = parts_->inbox.next_id();
  parts_->inbox.order([id, prompt = std::move(prompt), decision = std::move(decision)](PrefillAhead& ahead) mutable {
    ahead.prepare(id, std::move(prompt), std::move(decision));
  });
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
  const bool orders = parts_->inbox.has_orders();  // read first: an order that has left the inbox is counted already
  EngineStats stats = parts_->counters.stats();
  stats.busy_ahead = stats.busy_ahead || orders;
  stats.measuring = parts_->measuring.measuring();
  stats.measured_turns = parts_->measuring.measured();
  stats.segments = parts_->store.stats();
  if (parts_->disk) stats.store = parts_->disk->stats();
  stats.method_bytes = parts_->states.bytes();
  return stats;
}

const Model& StepEngine::model() const { return *parts_->model; }
MethodState* StepEngine::method_state(const Method& method) { return parts_->states.of(method); }
std::shared_ptr<const Segment> StepEngine::segment(const SegmentHandle& handle) const {
  return parts_->store.peek(handle);
}

Calibration StepEngine::calibration() const { return parts_->measuring.calibration(); }
void StepEngine::set_calibration(Calibration calibration) { parts_->measuring.set_calibration(std::move(calibration)); }
std::optional<RelayHistory> StepEngine::changed_history() { return parts_->measuring.changed_history(); }

std::vector<std::byte> StepEngine::context_bytes(const ContextHandle& context) {
  return parts_->inbox
      .on_thread<std::vector<std::byte>>(
          [this, context] { return bytes_of(*parts_->backend, *context, parts_->store); })
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

bool StepEngine::may_have_store() const { return parts_->device.host_memory && !is_recurrent(*parts_); }

void StepEngine::set_store(std::unique_ptr<KvStore> store, bool for_all) {
  const auto given = std::make_shared<std::unique_ptr<KvStore>>(std::move(store));
  parts_->inbox.on_thread<bool>([this, given, for_all] {
    parts_->disk = std::move(*given);
    parts_->disk_for_all = for_all;
    return true;
  });
}

void StepEngine::finish_store() {
  if (parts_->disk) parts_->disk->finish_writing();
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
