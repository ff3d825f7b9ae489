#include "engine/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "engine/backend/make_backend.h"
#include "engine/scheduler.h"

namespace baton {
namespace {

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
  if (request.max_tokens < 1) invalid(fmt::format("max_tokens: {} is too small; expected at least 1", request.max_tokens));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) invalid("stop: a stop string is empty");
  }
  if (const std::string problem = request.sampling.problem(); !problem.empty()) invalid(problem);
  const std::int32_t context = model.options.context;
  if (length + 1 > context) {
    throw EngineError(EngineError::Kind::too_long,
                      fmt::format("the prompt has {} tokens; the context of {} leaves room for {}", length, context, context - 1));
  }
}

}  // namespace

class LocalEngine::Core {
 public:
  Core(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const EngineOptions& options)
      : backend_(std::move(backend)), model_(std::move(model)), options_(options), forward_(*backend_, *model_), info_(backend_->info()) {
    if (options_.kv_budget_bytes <= 0) options_.kv_budget_bytes = half_of_free_memory();
    stats_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
  }

  RequestId submit(GenerationRequest request) {
    check(request, *model_);
    std::int32_t length = 0;
    for (const PromptPart& part : request.prompt) length += static_cast<std::int32_t>(part.tokens.size());
    request.max_tokens = std::min(request.max_tokens, model_->options.context - length);
    const auto bytes = static_cast<std::int64_t>(bytes_for(length + request.max_tokens));
    if (bytes > options_.kv_budget_bytes) {
      throw EngineError(EngineError::Kind::memory,
                        fmt::format("the KV cache of {} prompt tokens and {} new ones takes {} bytes; the budget is {}", length,
                                    request.max_tokens, bytes, options_.kv_budget_bytes));
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
  }

  const Model& model() const { return *model_; }
  const BackendInfo& device() const { return info_; }
  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  using List = std::deque<std::unique_ptr<Sequence>>;

  std::size_t bytes_for(std::int32_t positions) const {
    return KvCache::bytes_for(*backend_, model_->kv_shape(), model_->config.layers, positions);
  }

  /// Sleeps until there is something to do; false when the engine is to end.
  bool wait_for_work() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || !incoming_.empty() || !cancelled_.empty() || !running_.empty() || !waiting_.empty(); });
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
      const auto bytes = static_cast<std::int64_t>(bytes_for(next.longest()));
      if (kv_bytes_ + bytes > options_.kv_budget_bytes) return;  // its turn comes when others end
      try {
        next.give_cache(KvCache(*backend_, model_->kv_shape(), model_->config.layers, next.longest()));
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

  void step() {
    std::vector<Pending> pending;
    for (const auto& sequence : running_) pending.push_back({sequence->pending(), sequence->decoding()});
    const std::vector<std::int32_t> share = plan_step(pending, options_.max_step_rows);

    rows_.clear();
    std::vector<Sequence*> taking_part;
    std::vector<Sequence*> sampling;
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (share[i] == 0) continue;
      Sequence& sequence = *running_[i];
      sequence.on_step_begin(now);
      taking_part.push_back(&sequence);
      const std::int32_t cache = rows_.add_cache(&sequence.cache());
      const std::int32_t begin = sequence.cache().length();
      for (std::int32_t at = begin; at < begin + share[i]; ++at) {
        rows_.add_row(cache, at, sequence.tokens()[static_cast<std::size_t>(at)]);
      }
      if (share[i] == pending[i].tokens) {
        rows_.logits_rows.push_back(static_cast<std::int32_t>(rows_.size() - 1));
        sampling.push_back(&sequence);
      }
    }

    std::span<const float> logits;
    try {
      logits = forward_.run(rows_);
    } catch (const std::exception& error) {
      for (Sequence* sequence : taking_part) end(sequence, FinishReason::error, error.what());
      return;
    }
    std::size_t part = 0;
    for (std::size_t i = 0; i < share.size(); ++i) {
      if (share[i] > 0) {
        KvCache& cache = taking_part[part++]->cache();
        cache.commit(cache.length() + share[i]);
      }
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
    const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == sequence; });
    if (found != running_.end()) end(running_, found, reason, error);
  }

  void end(List& list, List::iterator at, FinishReason reason, const std::string& error) {
    const std::unique_ptr<Sequence> sequence = std::move(*at);
    list.erase(at);
    count_kv(-static_cast<std::int64_t>(sequence->cache_bytes()));
    try {
      sequence->finish(reason, error);
    } catch (const std::exception&) {
      // A host's on_finished threw: it has been told, and the engine goes on for the others.
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

  // The rest belongs to the engine's thread.
  List waiting_;
  List running_;
  std::vector<RequestId> cancelling_;
  std::int64_t kv_bytes_ = 0;
  StepRows rows_;
  std::vector<float> scratch_;
};

LocalEngine::LocalEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const EngineOptions& options)
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

std::shared_ptr<Engine> open_engine(const std::filesystem::path& path, const EngineOptions& options) {
  auto backend = make_backend({options.device, options.threads});
  auto model = open_model(*backend, path, options.model);
  return std::make_shared<LocalEngine>(std::move(backend), std::move(model), options);
}

}  // namespace baton
