// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/step_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "engine/backend/make_backend.h"
#include "engine/steps/defaults.h"
#include "engine/steps/hand_over.h"
#include "engine/steps/prefill_ahead.h"
#include "engine/steps/request_check.h"
#include "engine/steps/scheduler.h"

namespace baton {
namespace {

constexpr std::int32_t kUsualPositions = 16384;  // whose angles are made before anybody waits for a token

}  // namespace

class StepEngine::Core {
 public:
  Core(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options)
      : backend_(std::move(backend)),
        model_(std::move(model)),
        device_(backend_->info()),
        info_{device_.name, device_.device, device_.threads, model_->options.context, kv_format_of(*model_)},
        options_(with_defaults(options, device_)),
        forward_(*backend_, *model_),
        store_(options_.segment_budget_bytes, options_.host_segment_budget_bytes),
        prefixes_(store_),
        anchors_(*backend_, *model_, options_.anchor_budget_bytes),
        corrector_(*backend_, *model_),
        ahead_(*backend_, *model_, forward_.angles(), prefixes_, options_) {
    forward_.angles().range(0, std::min(model_->options.context, kUsualPositions));
    stats_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
    anchors_.store().on_bytes([this](std::int64_t bytes) { store_.charge(bytes); });
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

  EarlyId prepare(EarlyPrompt prompt) {
    check(prompt, *model_);
    const std::lock_guard lock(mutex_);
    const EarlyId id = ++last_id_;
    orders_.push_back(
        [id, prompt = std::move(prompt)](PrefillAhead& ahead) mutable { ahead.prepare(id, std::move(prompt)); });
    wake_.notify_one();
    return id;
  }

  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
    check(parts, *model_);
    const std::lock_guard lock(mutex_);
    orders_.push_back([id, parts = std::move(parts), complete](PrefillAhead& ahead) mutable {
      ahead.update(id, std::move(parts), complete);
    });
    wake_.notify_one();
  }

  void forget(EarlyId id) {
    const std::lock_guard lock(mutex_);
    orders_.push_back([id](PrefillAhead& ahead) { ahead.forget(id); });
    wake_.notify_one();
  }

  void park() {
    auto done = std::make_shared<std::promise<void>>();
    const std::future<void> over = done->get_future();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      orders_.push_back([this, done = std::move(done)](PrefillAhead&) {
        store_.park();
        try {
          backend_->wait();
        } catch (const std::exception&) {  // the device has failed: its requests will say so
        }
        done->set_value();
      });
      wake_.notify_one();
    }
    over.wait();  // also over when the engine ends before: the order goes with its promise
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
      if (!running_.empty() || ahead_.has_work(free_bytes())) step();
    }
    ahead_.clear();
    for (auto* list : {&running_, &waiting_}) {
      while (!list->empty()) end(*list, list->begin(), FinishReason::cancelled, {});
    }
    prefixes_.clear();
    store_.close();
  }

  const Model& model() const { return *model_; }
  const EngineInfo& info() const { return info_; }
  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.busy_ahead = stats.busy_ahead || !orders_.empty();
    stats.segments = store_.stats();
    stats.anchors = anchors_.store().stats();
    return stats;
  }
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const { return store_.peek(handle); }
  std::shared_ptr<const Segment> portable(const SegmentHandle& handle) const {
    return device_.host_memory ? store_.peek(handle) : store_.lent(handle);
  }
  void set_corrections(std::shared_ptr<const Corrections> corrections) {
    const std::lock_guard lock(mutex_);
    corrections_ = std::move(corrections);
  }
  std::shared_ptr<const Corrections> corrections() const {
    const std::lock_guard lock(mutex_);
    return corrections_;
  }
  AnchorStore& anchors() { return anchors_.store(); }
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
  using Order = std::function<void(PrefillAhead& ahead)>;

  /// What was copied for a sequence before its first step.
  struct Copied {
    RequestId id;
    std::int32_t tokens;
  };

  /// What a sequence has in a step.
  struct Part {
    Sequence* sequence;
    std::int32_t rows;
  };

  /// Fills in the model's layer range. A method that needs one and has none is refused.
  void resolve(ReuseOptions& reuse) const {
    const std::int32_t layers = model_->config.layers;
    if (reuse.method->layers == Method::Layers::group) {
      if (reuse.range.is_group(layers)) return;
      throw EngineError(EngineError::Kind::invalid,
                        fmt::format("reuse: {} needs the group of layers that readers recompute, start < end < {}; "
                                    "not {} to {}",
                                    reuse.method->name, layers, reuse.range.start, reuse.range.end));
    }
    if (!reuse.range.valid(layers)) reuse.range = layer_range();
    if (reuse.range.valid(layers)) return;
    if (reuse.method->layers == Method::Layers::detection) {
      throw EngineError(EngineError::Kind::invalid,
                        fmt::format("reuse: {} needs the model's layer range, and the model has not been profiled",
                                    reuse.method->name));
    }
    reuse.range = {};
  }

  std::size_t bytes_for(const GenerationRequest& request, std::int32_t positions) const {
    return KvCache::bytes_for(*backend_, layout_for(request, *model_, request.reuse.range), positions);
  }

  /// Sleeps until there is something to do; false when the engine is to end.
  bool wait_for_work() {
    std::vector<Order> orders;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        return stopping_ || !incoming_.empty() || !cancelled_.empty() || !orders_.empty() || !running_.empty() ||
               !waiting_.empty() || ahead_.has_work(free_bytes());
      });
      std::move(incoming_.begin(), incoming_.end(), std::back_inserter(waiting_));
      incoming_.clear();
      cancelling_.swap(cancelled_);
      cancelled_.clear();
      orders.swap(orders_);
      if (!orders.empty()) stats_.busy_ahead = true;
      if (stopping_) return false;
    }
    for (Order& order : orders) order(ahead_);
    store_.settle();  // what anchors were charged since
    count_kv(0);
    return true;
  }

  /// For caches of early prompts: requests that wait come first.
  std::int64_t free_bytes() const {
    return waiting_.empty() ? options_.kv_budget_bytes - kv_bytes_ - ahead_.bytes() : 0;
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
      const EarlyId early = next.request().early;
      const auto bytes = static_cast<std::int64_t>(bytes_for(next.request(), next.longest()));
      if (kv_bytes_ + bytes > options_.kv_budget_bytes) return;  // its turn comes when others end
      const std::int64_t own = ahead_.bytes_of(early);           // it takes that over, or it goes
      while (kv_bytes_ + ahead_.bytes() - own + std::max(bytes, own) > options_.kv_budget_bytes) {
        if (!ahead_.give_back(early)) break;
      }
      std::vector<float> logits;
      try {
        logits = start(next);
      } catch (const std::exception& error) {
        if (ahead_.give_back(0)) continue;
        if (!running_.empty()) return;
        end(waiting_, waiting_.begin(), FinishReason::error, error.what());
        continue;
      }
      count_kv(static_cast<std::int64_t>(next.cache_bytes()));
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      if (!logits.empty()) sample({running_.back().get()}, logits);
    }
  }

  /// Returns the logits of the prompt's last token where they were computed ahead.
  std::vector<float> start(Sequence& sequence) {
    const Clock::time_point begin = Clock::now();
    const GenerationRequest& request = sequence.request();
    const std::span<const TokenId> prompt(sequence.tokens().data(), static_cast<std::size_t>(sequence.prompt_length()));
    const KvLayout layout = layout_for(request, *model_, request.reuse.range);
    auto early = ahead_.take(request.early, prompt, sequence.longest(), layout);
    KvCache cache = early ? std::move(early->cache) : KvCache(*backend_, layout, sequence.longest());
    const InPlace in_place = early ? InPlace{early->placed, early->ahead, early->length} : InPlace{};
    corrector_.use(corrections());
    PromptAssembly assembly(request, prompt, *backend_, *model_, store_, prefixes_, anchors_, corrector_, in_place,
                            costs_);
    PrefillTimes times;
    times.match = milliseconds(Clock::now() - begin);
    forward_.beside([&] { assembly.place(*backend_, forward_.angles(), cache); });
    placed_.push_back({sequence.id(), assembly.placed_tokens()});
    sequence.start(std::move(cache), std::move(assembly), times);
    sequence.on_step_begin(begin);
    return early ? std::move(early->logits) : std::vector<float>();
  }

  void step() {
    std::vector<Pending> pending;
    for (const auto& sequence : running_) pending.push_back({sequence->pending(), sequence->decoding()});
    const auto decoding =
        std::count_if(pending.begin(), pending.end(), [](const Pending& one) { return one.decoding; });
    const bool prefilling = static_cast<std::size_t>(decoding) < pending.size();
    const std::int32_t most = decoding > 0 ? options_.max_step_rows : options_.max_prefill_rows;
    const std::vector<std::int32_t> share = plan_step(pending, most);

    rows_.clear();
    std::vector<Part> parts;
    std::vector<Sequence*> alone;     // whose tokens are chosen where the logits are
    std::vector<Sequence*> sampling;  // those that get their logits, of the rows:
    std::vector<std::int32_t> others;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (share[i] == 0) continue;
      Sequence& sequence = *running_[i];
      const std::int32_t count = sequence.add_rows(share[i], rows_);
      parts.push_back({&sequence, count});
      if (count != pending[i].tokens) continue;
      const auto last = static_cast<std::int32_t>(rows_.size() - 1);
      if (sequence.chooses_alone()) {
        alone.push_back(&sequence);
        rows_.logits_rows.push_back(last);
        rows_.choices.push_back(sequence.choice());
      } else {
        sampling.push_back(&sequence);
        others.push_back(last);
      }
    }
    rows_.logits_rows.insert(rows_.logits_rows.end(), others.begin(), others.end());

    ahead_.refresh([this](RequestId id) { return decoded(id); });
    ahead_.add_rows(rows_, static_cast<std::int32_t>(decoding), prefilling, free_bytes());
    const std::int32_t rows_ahead = ahead_.rows();
    if (rows_.size() == 0) return count_kv(0);

    wait_for_layers(parts);
    std::span<const float> logits;
    const Clock::time_point begin = Clock::now();
    try {
      logits = forward_.run(rows_);
    } catch (const std::exception& error) {
      // Once more without them; unless attention was summed up, which would count twice.
      const bool summed = std::any_of(rows_.caches.begin(), rows_.caches.end(),
                                      [](const KvCache* cache) { return cache->received() != nullptr; });
      const bool dropped = ahead_.drop_parts() || ahead_.give_back(0);
      if (dropped && !summed) return;
      for (const Part& part : parts) end(part.sequence, FinishReason::error, error.what());
      return;
    }
    if (prefilling) costs_.on_step(rows_.path, forward_.times());
    take_copy_times();
    const auto sampled = sampling.size() * static_cast<std::size_t>(model_->config.vocabulary);
    ahead_.commit(milliseconds(Clock::now() - begin), logits.subspan(sampled));
    count_kv(0);  // with the caches that were begun for rows ahead
    std::size_t row = 0;
    for (const Part& part : parts) {
      part.sequence->commit(std::span(rows_.path).subspan(row, static_cast<std::size_t>(part.rows)), forward_.times());
      row += static_cast<std::size_t>(part.rows);
    }
    {
      const std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.rows += rows_.size();
      stats_.rows_ahead += rows_ahead;
      stats_.spare_rows = ahead_.knee();
    }
    for (std::size_t i = 0; i < alone.size(); ++i) {
      take(*alone[i], [&] { return alone[i]->advance(forward_.chosen()[i]); });
    }
    sample(sampling, logits);
  }

  /// Sequences whose segments are still on their way from host memory have them placed layer by layer.
  void wait_for_layers(const std::vector<Part>& parts) {
    std::vector<Sequence*> arriving;
    for (const Part& part : parts) {
      if (part.sequence->assembly().is_arriving()) arriving.push_back(part.sequence);
    }
    if (arriving.empty()) return;
    rows_.before_layer = [this, arriving = std::move(arriving)](std::int32_t layer) {
      for (Sequence* sequence : arriving)
        sequence->assembly().place_arrived(*backend_, forward_.angles(), sequence->cache(), layer);
    };
  }

  /// What a request has decoded so far; null when it is not running.
  const std::vector<TokenId>* decoded(RequestId id) const {
    const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s->id() == id; });
    return found == running_.end() ? nullptr : &(*found)->result().tokens;
  }

  void sample(const std::vector<Sequence*>& sequences, std::span<const float> logits) {
    const auto vocabulary = static_cast<std::size_t>(model_->config.vocabulary);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      scratch_.assign(logits.begin() + static_cast<std::ptrdiff_t>(i * vocabulary),
                      logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocabulary));
      take(*sequences[i], [&] { return sequences[i]->advance(scratch_); });
    }
  }

  /// A sequence takes its next token; advance() says whether it was the last.
  template <class Advance>
  void take(Sequence& sequence, const Advance& advance) {
    try {
      const bool over = advance();
      follow(sequence);
      if (over) end(&sequence, FinishReason::eos, {});
    } catch (const std::exception& error) {  // no finite logit, or a callback that threw
      end(&sequence, FinishReason::error, error.what());
    }
  }

  /// An answer that will be corrected by anchors is compared with them as it comes.
  void follow(Sequence& sequence) {
    const GenerationRequest& request = sequence.request();
    if (!takes_anchors(request.reuse) || request.output_slot.empty() || !request.reuse.anchors.aligned) return;
    anchors_.follow(sequence.id(), request.output_slot, request.reuse.anchors.pool, sequence.result().tokens);
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
    ahead_.forget(sequence->request().early);  // of a request that did not come to take it
    sequence->close(reason, error);
    ahead_.ended(sequence->id(), reason == FinishReason::eos ? &sequence->result().tokens : nullptr);
    anchors_.ended(sequence->id(), sequence->result().tokens,
                   sequence->cache_bytes() > 0 ? sequence->cache().length() - sequence->prompt_length() : 0);
    if (reason == FinishReason::eos) hand_over(*sequence, *backend_, store_, prefixes_, anchors_);
    count_kv(-bytes);
    try {
      sequence->deliver();
    } catch (const std::exception&) {
      // A host's on_finished threw: it has been told, and the engine goes on for the others.
    }
  }

  /// The step has said how long copying took the sequences that were started before it.
  void take_copy_times() {
    const std::vector<double>& taken = forward_.times().beside;
    for (std::size_t i = 0; i < taken.size() && taken.size() == placed_.size(); ++i) {
      costs_.on_copy(placed_[i].tokens, taken[i]);
      for (const auto& sequence : running_) {
        if (sequence->id() == placed_[i].id) sequence->result().prefill.copy += taken[i];
      }
    }
    placed_.clear();
  }

  void count_kv(std::int64_t bytes) {
    kv_bytes_ += bytes;
    const bool busy = ahead_.has_work(free_bytes());
    const std::lock_guard lock(mutex_);
    stats_.busy_ahead = busy;
    stats_.kv_bytes = kv_bytes_ + ahead_.bytes();
    stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, stats_.kv_bytes);
  }

  std::unique_ptr<Backend> backend_;  // first: outlives all that it has handed out
  std::shared_ptr<const Model> model_;
  BackendInfo device_;
  EngineInfo info_;
  LocalEngineOptions options_;
  Forward forward_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  List incoming_;                                   // guarded by mutex_
  std::vector<Order> orders_;                       // guarded by mutex_
  std::vector<RequestId> cancelled_;                // guarded by mutex_
  bool stopping_ = false;                           // guarded by mutex_
  RequestId last_id_ = 0;                           // guarded by mutex_
  EngineStats stats_;                               // guarded by mutex_
  LayerRange range_;                                // guarded by mutex_
  std::shared_ptr<const Corrections> corrections_;  // guarded by mutex_

  // The rest belongs to the engine's thread.
  List waiting_;
  List running_;
  std::vector<RequestId> cancelling_;
  std::int64_t kv_bytes_ = 0;
  SegmentStore store_;
  PrefixCache prefixes_;
  Anchors anchors_;
  Corrector corrector_;
  PrefillAhead ahead_;
  ReuseCosts costs_;
  std::vector<Copied> placed_;  // since the last step
  StepRows rows_;
  std::vector<float> scratch_;
};

StepEngine::StepEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                       const LocalEngineOptions& options)
    : core_(std::make_shared<Core>(std::move(backend), std::move(model), options)),
      thread_([core = core_] { core->loop(); }) {}

StepEngine::~StepEngine() {
  core_->stop();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();  // destroyed inside one of its own callbacks: the thread ends by itself
  } else {
    thread_.join();
  }
}

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
const Model& StepEngine::model() const { return core_->model(); }
const ModelText& StepEngine::text() const { return core_->model(); }
const EngineInfo& StepEngine::info() const { return core_->info(); }
EngineStats StepEngine::stats() const { return core_->stats(); }
AnchorStore& StepEngine::anchors() { return core_->anchors(); }
std::shared_ptr<const Segment> StepEngine::segment(const SegmentHandle& handle) const { return core_->segment(handle); }
std::shared_ptr<const Segment> StepEngine::portable(const SegmentHandle& handle) const {
  struct Kept {
    std::shared_ptr<const Core> core;  // its memory goes back there
    std::shared_ptr<const Segment> segment;
  };
  auto kept = std::make_shared<const Kept>(Kept{core_, core_->portable(handle)});
  if (!kept->segment) return nullptr;
  return {kept, kept->segment.get()};
}
LayerRange StepEngine::layer_range() const { return core_->layer_range(); }
void StepEngine::set_layer_range(LayerRange range) { core_->set_layer_range(range); }

std::shared_ptr<LocalEngine> open_engine(const std::filesystem::path& path, const LocalEngineOptions& options) {
  auto backend = make_backend({options.device, options.threads});
  auto model = open_model(*backend, path, options.model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

void StepEngine::set_corrections(std::shared_ptr<const Corrections> corrections) {
  core_->set_corrections(std::move(corrections));
}

}  // namespace baton
