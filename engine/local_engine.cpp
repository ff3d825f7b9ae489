#include "engine/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "engine/backend/make_backend.h"
#include "engine/scheduler.h"

namespace baton {
namespace {

std::int64_t half_of_free_memory();

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

EngineOptions with_budgets(EngineOptions options) {
  if (options.kv_budget_bytes <= 0) options.kv_budget_bytes = half_of_free_memory();
  if (options.segment_budget_bytes <= 0) options.segment_budget_bytes = options.kv_budget_bytes / 3;
  return options;
}

std::int64_t half_of_free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::int64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    if (key == "MemAvailable:") return kibibytes * 1024 / 2;
    std::getline(file, unit);
  }
  return std::int64_t{4} << 30;
}

void check(const GenerationRequest& request, const Model& model) {
  const auto invalid = [](const std::string& message) { throw EngineError(EngineError::Kind::invalid, message); };
  std::int64_t length = 0;
  for (const PromptPart& part : request.prompt) {
    length += static_cast<std::int64_t>(part.tokens.size());
    for (const TokenId id : part.tokens) {
      if (id < 0 || id >= model.config.vocabulary) {
        invalid(fmt::format("prompt: token id {} is outside the vocabulary of {}", id, model.config.vocabulary));
      }
    }
  }
  if (length == 0) invalid("prompt: has no tokens; expected at least one");
  if (request.max_tokens < 1)
    invalid(fmt::format("max_tokens: {} is too small; expected at least 1", request.max_tokens));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) invalid("stop: a stop string is empty");
  }
  if (const std::string problem = request.sampling.problem(); !problem.empty()) invalid(problem);
  const auto& methods = reuse_methods();
  if (std::find(methods.begin(), methods.end(), request.reuse.method) == methods.end()) {
    invalid(fmt::format("reuse: the method '{}' is not known to this engine", request.reuse.method));
  }
  for (const TokenId id : request.forced) {
    if (id < 0 || id >= model.config.vocabulary) {
      invalid(fmt::format("forced: token id {} is outside the vocabulary of {}", id, model.config.vocabulary));
    }
  }
  const std::int32_t context = model.options.context;
  if (length + 1 > context) {
    throw EngineError(
        EngineError::Kind::too_long,
        fmt::format("the prompt has {} tokens; the context of {} leaves room for {}", length, context, context - 1));
  }
}

}  // namespace

class LocalEngine::Core {
 public:
  Core(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const EngineOptions& options)
      : backend_(std::move(backend)),
        model_(std::move(model)),
        options_(with_budgets(options)),
        forward_(*backend_, *model_),
        info_(backend_->info()),
        store_(options_.segment_budget_bytes),
        prefixes_(store_) {
    stats_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
  }

  RequestId submit(GenerationRequest request) {
    check(request, *model_);
    std::int32_t length = 0;
    for (const PromptPart& part : request.prompt) length += static_cast<std::int32_t>(part.tokens.size());
    if (!request.forced.empty()) request.max_tokens = static_cast<std::int32_t>(request.forced.size()) + 1;
    request.max_tokens = std::min(request.max_tokens, model_->options.context - length);
    resolve(request.reuse);
    const auto bytes = static_cast<std::int64_t>(bytes_for(request, length + request.max_tokens));
    if (bytes > options_.kv_budget_bytes) {
      throw EngineError(EngineError::Kind::memory,
                        fmt::format("the KV cache of {} prompt tokens and {} new ones takes {} bytes; the budget is {}",
                                    length, request.max_tokens, bytes, options_.kv_budget_bytes));
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) throw EngineError(EngineError::Kind::invalid, "the engine is closing and takes no more requests");
    const RequestId id = ++last_id_;
    incoming_.push_back(std::make_unique<Sequence>(id, std::move(request), *model_));
    wake_.notify_one();
    return id;
  }

  void cancel(RequestId id) {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    wake_.notify_one();
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }

  void loop() {
    while (wait_for_work()) {
      apply_cancels();
      admit();
      if (!running_.empty()) step();
    }
    for (auto* list : {&running_, &waiting_}) {
      while (!list->empty()) end(*list, list->begin(), FinishReason::cancelled, {});
    }
    prefixes_.clear();
    store_.close();
  }

  const Model& model() const { return *model_; }
  const BackendInfo& device() const { return info_; }
  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.segments = store_.stats();
    return stats;
  }
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const { return store_.peek(handle); }
  LayerRange layer_range() const {
    const std::lock_guard lock(mutex_);
    return range_;
  }
  void set_layer_range(LayerRange range) {
    const std::lock_guard lock(mutex_);
    range_ = range;
  }

 private:
  using List = std::deque<std::unique_ptr<Sequence>>;

  /// What a sequence has in a step.
  struct Part {
    Sequence* sequence;
    std::int32_t rows;
  };

  /// Fills in the model's layer range. A method that needs one and has none is refused.
  void resolve(ReuseOptions& reuse) const {
    const std::int32_t layers = model_->config.layers;
    if (!reuse.range.valid(layers)) reuse.range = layer_range();
    if (reuse.range.valid(layers)) return;
    if (reuse.method == "relay") {
      throw EngineError(EngineError::Kind::invalid,
                        "reuse: relay needs the model's layer range, and the model has not been profiled");
    }
    reuse.range = {};
  }

  std::size_t bytes_for(const GenerationRequest& request, std::int32_t positions) const {
    return KvCache::bytes_for(*backend_, layout_for(request, *model_, request.reuse.range), positions);
  }

  /// Sleeps until there is something to do; false when the engine is to end.
  bool wait_for_work() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return stopping_ || !incoming_.empty() || !cancelled_.empty() || !running_.empty() || !waiting_.empty();
    });
    std::move(incoming_.begin(), incoming_.end(), std::back_inserter(waiting_));
    incoming_.clear();
    cancelling_.swap(cancelled_);
    cancelled_.clear();
    return !stopping_;
  }

  void apply_cancels() {
    for (const RequestId id : cancelling_) {
      for (auto* list : {&running_, &waiting_}) {
        const auto found = std::find_if(list->begin(), list->end(), [&](const auto& s) { return s->id() == id; });
        if (found != list->end()) end(*list, found, FinishReason::cancelled, {});
      }
    }
    cancelling_.clear();
  }

  void admit() {
    while (!waiting_.empty() && static_cast<std::int32_t>(running_.size()) < options_.max_sequences) {
      Sequence& next = *waiting_.front();
      const auto bytes = static_cast<std::int64_t>(bytes_for(next.request(), next.longest()));
      if (kv_bytes_ + bytes > options_.kv_budget_bytes) return;  // its turn comes when others end
      try {
        start(next);
      } catch (const std::exception& error) {
        if (!running_.empty()) return;
        end(waiting_, waiting_.begin(), FinishReason::error, error.what());
        continue;
      }
      count_kv(bytes);
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  void start(Sequence& sequence) {
    const Clock::time_point begin = Clock::now();
    const std::span<const TokenId> prompt(sequence.tokens().data(), static_cast<std::size_t>(sequence.prompt_length()));
    KvCache cache(*backend_, layout_for(sequence.request(), *model_, sequence.request().reuse.range),
                  sequence.longest());
    PromptAssembly assembly(sequence.request(), prompt, *model_, store_, prefixes_);
    const Clock::time_point matched = Clock::now();
    assembly.place(*backend_, model_->rope, cache);
    PrefillTimes times;
    times.match = milliseconds(matched - begin);
    times.copy = milliseconds(Clock::now() - matched);
    sequence.start(std::move(cache), std::move(assembly), times);
    sequence.on_step_begin(begin);
  }

  void step() {
    std::vector<Pending> pending;
    for (const auto& sequence : running_) pending.push_back({sequence->pending(), sequence->decoding()});
    const std::vector<std::int32_t> share = plan_step(pending, options_.max_step_rows);

    rows_.clear();
    std::vector<Part> parts;
    std::vector<Sequence*> sampling;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (share[i] == 0) continue;
      Sequence& sequence = *running_[i];
      const std::int32_t count = sequence.add_rows(share[i], rows_);
      parts.push_back({&sequence, count});
      if (count == pending[i].tokens) {
        rows_.logits_rows.push_back(static_cast<std::int32_t>(rows_.size() - 1));
        sampling.push_back(&sequence);
      }
    }

    std::span<const float> logits;
    try {
      logits = forward_.run(rows_);
    } catch (const std::exception& error) {
      for (const Part& part : parts) end(part.sequence, FinishReason::error, error.what());
      return;
    }
    std::size_t row = 0;
    for (const Part& part : parts) {
      part.sequence->commit(std::span(rows_.path).subspan(row, static_cast<std::size_t>(part.rows)), forward_.times());
      row += static_cast<std::size_t>(part.rows);
    }
    {
      const std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.rows += rows_.size();
    }
    sample(sampling, logits);
  }

  void sample(const std::vector<Sequence*>& sequences, std::span<const float> logits) {
    const auto vocabulary = static_cast<std::size_t>(model_->config.vocabulary);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      scratch_.assign(logits.begin() + static_cast<std::ptrdiff_t>(i * vocabulary),
                      logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocabulary));
      try {
        if (sequences[i]->advance(scratch_)) end(sequences[i], FinishReason::eos, {});
      } catch (const std::exception& error) {  // no finite logit, or a callback that threw
        end(sequences[i], FinishReason::error, error.what());
      }
    }
  }

  void end(Sequence* sequence, FinishReason reason, const std::string& error) {
    const auto found =
        std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == sequence; });
    if (found != running_.end()) end(running_, found, reason, error);
  }

  void end(List& list, List::iterator at, FinishReason reason, const std::string& error) {
    const std::unique_ptr<Sequence> sequence = std::move(*at);
    list.erase(at);
    const auto bytes = static_cast<std::int64_t>(sequence->cache_bytes());
    sequence->close(reason, error);
    if (reason == FinishReason::eos) hand_over(*sequence);
    count_kv(-bytes);
    try {
      sequence->deliver();
    } catch (const std::exception&) {
      // A host's on_finished threw: it has been told, and the engine goes on for the others.
    }
  }

  /// Makes segments of what later prompts will hold, and a prefix of what is exact. Without memory for them there are
  /// none, and the later prompts are computed.
  void hand_over(Sequence& sequence) {
    const GenerationRequest& request = sequence.request();
    const KvCache& cache = sequence.cache();
    const PromptAssembly& assembly = sequence.assembly();
    GenerationResult& result = sequence.result();
    result.segments.resize(request.prompt.size());
    if (!cache.layout().raw_keys) return;
    const std::span<const TokenId> tokens(sequence.tokens());
    const auto keep = [&](std::int32_t begin, std::vector<TokenId> ids, std::int64_t readers, int hops,
                          const std::string& origin, std::span<const float> entropy) -> SegmentHandle {
      const std::int32_t n = std::min(static_cast<std::int32_t>(ids.size()), cache.length() - begin);
      if (n < 1) return nullptr;
      auto segment = std::make_shared<Segment>(*backend_, cache, begin, n, std::move(ids));
      segment->hops = hops;
      segment->origin = origin;
      entropy = entropy.first(std::min(entropy.size(), static_cast<std::size_t>(n)));
      segment->entropy.assign(entropy.begin(), entropy.end());
      return store_.add(std::move(segment), readers);
    };
    try {
      std::int32_t at = 0;
      for (std::size_t i = 0; request.reuse.record && i < request.prompt.size(); ++i) {
        const PromptPart& part = request.prompt[i];
        const std::int32_t begin = at;
        at += static_cast<std::int32_t>(part.tokens.size());
        const bool reused = assembly.uses[i].method != "full" && assembly.uses[i].method != "prefix";
        if (part.readers == 0 || part.tokens.empty() || reused) continue;
        result.segments[i] =
            keep(begin, part.tokens, part.readers, at <= assembly.exact_length ? 0 : assembly.hops, part.slot, {});
      }
      if (request.reuse.record && request.output_readers > 0) {
        result.output = keep(sequence.prompt_length(), result.tokens, request.output_readers, assembly.hops, {},
                             sequence.entropy());
      }
      if (request.reuse.method != "full" && request.reuse.prefix) {
        const std::int32_t exact = assembly.hops == 0 ? cache.length() : assembly.exact_length;
        if (exact > 0) prefixes_.add(*backend_, cache, tokens.first(static_cast<std::size_t>(exact)));
      }
    } catch (const std::exception&) {
      // The answer is complete; only its reuse is lost.
    }
  }

  void count_kv(std::int64_t bytes) {
    kv_bytes_ += bytes;
    const std::lock_guard lock(mutex_);
    stats_.kv_bytes = kv_bytes_;
    stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, kv_bytes_);
  }

  std::unique_ptr<Backend> backend_;  // first: outlives all that it has handed out
  std::shared_ptr<const Model> model_;
  EngineOptions options_;
  Forward forward_;
  BackendInfo info_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  List incoming_;                     // guarded by mutex_
  std::vector<RequestId> cancelled_;  // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  RequestId last_id_ = 0;             // guarded by mutex_
  EngineStats stats_;                 // guarded by mutex_
  LayerRange range_;                  // guarded by mutex_

  // The rest belongs to the engine's thread.
  List waiting_;
  List running_;
  std::vector<RequestId> cancelling_;
  std::int64_t kv_bytes_ = 0;
  SegmentStore store_;
  PrefixCache prefixes_;
  StepRows rows_;
  std::vector<float> scratch_;
};

LocalEngine::LocalEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                         const EngineOptions& options)
    : core_(std::make_shared<Core>(std::move(backend), std::move(model), options)),
      thread_([core = core_] { core->loop(); }) {}

LocalEngine::~LocalEngine() {
  core_->stop();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();  // destroyed inside one of its own callbacks: the thread ends by itself
  } else {
    thread_.join();
  }
}

RequestId LocalEngine::submit(GenerationRequest request) { return core_->submit(std::move(request)); }
void LocalEngine::cancel(RequestId id) { core_->cancel(id); }
const Model& LocalEngine::model() const { return core_->model(); }
BackendInfo LocalEngine::device() const { return core_->device(); }
EngineStats LocalEngine::stats() const { return core_->stats(); }
std::shared_ptr<const Segment> LocalEngine::segment(const SegmentHandle& handle) const {
  return core_->segment(handle);
}
LayerRange LocalEngine::layer_range() const { return core_->layer_range(); }
void LocalEngine::set_layer_range(LayerRange range) { core_->set_layer_range(range); }

std::shared_ptr<Engine> open_engine(const std::filesystem::path& path, const EngineOptions& options) {
  auto backend = make_backend({options.device, options.threads});
  auto model = open_model(*backend, path, options.model);
  return std::make_shared<LocalEngine>(std::move(backend), std::move(model), options);
}

}  // namespace baton
