// SPDX-License-Identifier: Apache-2.0
// EngineCore: the state that StepEngine and its thread share. The public functions may be called from any thread; the
// private functions run on the engine's thread. A step is a transaction: plan rows, reserve memory, run, then commit,
// or fail the requests that took part. Nothing that a request or a shortage of memory causes ends the thread
// (docs/decisions/memory.md).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/local_engine.h"
#include "engine/loop/answer_masks.h"
#include "engine/loop/prefill_ahead.h"
#include "engine/loop/relay_measuring.h"
#include "engine/loop/reuse_costs.h"
#include "engine/loop/scheduler.h"
#include "engine/loop/sequence.h"
#include "engine/loop/speculation.h"
#include "engine/model/forward.h"

namespace baton {

class EngineCore {
 public:
  EngineCore(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options);
  void read_vocabulary(const std::stop_token& stop) { masks_.vocabulary(stop); }
  RequestId submit(GenerationRequest request);
  void cancel(RequestId id);
  EarlyId prepare(EarlyPrompt prompt);
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete);
  void forget(EarlyId id) noexcept;
  void park();
  std::vector<std::byte> context_bytes(const ContextHandle& context);
  ContextHandle make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops, std::vector<std::byte> bytes);
  void stop();
  void loop() noexcept;

  const Model& model() const { return *model_; }
  const EngineInfo& info() const { return info_; }
  EngineStats stats() const;
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const { return store_.peek(handle); }
  std::shared_ptr<const Segment> exported_kv(const SegmentHandle& handle) const;
  AnchorStore& anchors() { return anchors_.store(); }
  RelayMeasuring& measuring() { return measuring_; }

 private:
  using List = std::deque<std::unique_ptr<Sequence>>;
  using Order = std::function<void(PrefillAhead& ahead)>;

  /// The KV that was copied for a sequence before its first step.
  struct Copied {
    RequestId id;
    std::int32_t tokens;
  };

  /// The rows of one sequence in a step.
  struct Part {
    Sequence* sequence;
    std::int32_t rows;
  };

  /// Calls `work` on the engine's thread between two steps, and waits for it. Rethrows what it throws; returns nothing
  /// when the engine ends meanwhile.
  template <typename Result>
  std::optional<Result> on_thread(std::function<Result()> work) {
    auto done = std::make_shared<std::promise<Result>>();
    std::future<Result> result = done->get_future();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return std::nullopt;
      orders_.push_back([work = std::move(work), done = std::move(done)](PrefillAhead&) {
        try {
          done->set_value(work());
        } catch (...) {
          done->set_exception(std::current_exception());
        }
      });
      wake_.notify_one();
    }
    try {
      return result.get();
    } catch (const std::future_error&) {  // the engine has ended first and destroyed the order with its promise
      return std::nullopt;
    }
  }

  /// Fills in the model's layer range. Throws EngineError when the method needs a layer range and the model has none.
  void resolve(ReuseOptions& reuse, PlaceId place) const;
  void complete_auto(ReuseOptions& reuse, PlaceId place) const;
  void resolve_layers(ReuseOptions& reuse) const;
  std::size_t bytes_for(const GenerationRequest& request, std::int32_t positions) const;

  /// Sleeps until there is work. Returns false when the engine is closing.
  bool wait_for_work();
  /// Ends the requests that an unexpected error may have left incomplete, and all that was computed ahead.
  void recover(const char* error) noexcept;

  /// Bytes of the KV budget that caches of early prompts may use; waiting requests have priority.
  std::int64_t free_bytes() const;
  void apply_cancels();
  void admit();
  bool follows(Sequence& next);
  static bool takes_text(const GenerationRequest& request, const PromptPart& part, int hops);
  bool follows_texts(Sequence& next);
  void give_texts(Sequence& ended);
  std::int32_t known_beginning(const Sequence& next);
  void keep_for_followers(const Sequence& sequence);
  std::vector<LivePrefix> running_prefixes() const;

  /// Method verified: whether a sequence begins on approximate KV. Then exact KV of its prompt is computed ahead.
  bool begins_tentatively(const Sequence& sequence) const;
  EarlyId twin_of(const Sequence& sequence);
  /// Starts a tentative sequence again, with the exact KV of its prompt, and checks what it wrote.
  void verify(Sequence& sequence);
  /// At the end of a step: of those whose tentative answer has ended, or whose exact KV is complete. Not before: a
  /// check may end other sequences, whose rows of the step are not read yet.
  void verify_complete();

  /// Measures turns of method auto for their places (relay_probe.h), as the place's history wants it.
  void make_probe_of(Sequence& ended);
  /// Starts the next probe, while nothing waits and memory is plentiful.
  void admit_probe();
  /// Ends the running probe, whose rows or memory something else needs. Returns false when there is none.
  bool drop_probe() noexcept;

  /// Starts a sequence. Returns the logits of the prompt's last token where they were computed ahead, else nothing.
  std::vector<float> start(Sequence& sequence);
  PromptTime time_for(const Sequence& sequence) const;
  void step();

  /// Returns the maximum number of rows of prompts in the next step.
  std::int32_t prompt_rows(const std::vector<Pending>& pending);
  bool disturbs(const std::vector<Pending>& pending) const;
  std::int32_t rows_of_twins(std::int32_t decoding) const;

  void find_drafts();
  void report_progress(const std::vector<Part>& parts);
  void store_prefixes(const std::vector<Part>& parts);

  /// Makes the step place, layer by layer, the segments of its sequences that are still being uploaded.
  void wait_for_layers(const std::vector<Part>& parts);

  /// Returns the tokens that a request has decoded so far, or null when the request is not running.
  const std::vector<TokenId>* decoded(RequestId id) const;
  void sample(std::span<const Part> parts, std::span<const float> logits);

  static constexpr const char* kCallbackThrew = "a callback threw something other than an exception";

  /// Appends tokens to a sequence that has not fallen back to exact KV: the next one, and as long as they are those of
  /// the draft the ones behind it. advance(i) appends the token behind the i-th row with logits.
  template <class Advance>
  void take(Sequence& sequence, const Advance& advance) {
    try {
      for (std::int32_t i = 0;; ++i) {
        const Sequence::Next next = advance(i);
        follow(sequence);
        if (next == Sequence::Next::drafted) continue;
        if (next != Sequence::Next::end) return;
        if (sequence.speculation.is_tentative()) return sequence.speculation.end_tentative();
        return end(&sequence, FinishReason::eos, "");
      }
    } catch (const std::exception& error) {  // no finite logit, no memory, or a callback that threw
      end(&sequence, FinishReason::error, message_of(error));
    } catch (...) {  // a host may throw anything
      end(&sequence, FinishReason::error, kCallbackThrew);
    }
  }

  /// Compares the answer so far with the anchors that will correct it.
  void follow(Sequence& sequence) noexcept;
  void end(Sequence* sequence, FinishReason reason, const char* error) noexcept;
  void end(List& list, List::iterator at, FinishReason reason, const char* error) noexcept;
  /// The request is told in any case. What it leaves for others may get lost.
  void end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept;

  /// Adds the copy times that the last step measured to the sequences that were started before it.
  void take_copy_times();
  /// Bytes of the caches of the running requests.
  std::int64_t kv_bytes() const;
  void count_kv() noexcept;

  std::unique_ptr<Backend> backend_;  // declared first, since it must outlive all of its buffers
  std::shared_ptr<const Model> model_;
  BackendInfo device_;
  EngineInfo info_;
  LocalEngineOptions options_;
  Forward forward_;
  AnswerMasks masks_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  List incoming_;                     // guarded by mutex_
  std::vector<Order> orders_;         // guarded by mutex_
  bool forget_all_ = false;           // guarded by mutex_; for an order that had no memory
  std::vector<RequestId> cancelled_;  // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  RequestId last_id_ = 0;             // guarded by mutex_
  EngineStats stats_;                 // guarded by mutex_
  RelayMeasuring measuring_;

  // The members below belong to the engine's thread.
  List waiting_;
  List running_;
  List probes_;  // that wait
  std::vector<RequestId> cancelling_;
  SegmentStore store_;
  PrefixCache prefixes_;
  Anchors anchors_;
  Corrector corrector_;
  SpareRows spare_;
  DraftLength drafts_;
  PrefillAhead ahead_;
  ReuseCosts costs_;
  std::vector<Copied> placed_;  // since the last step
  StepRows rows_;
  std::vector<float> scratch_;
};

}  // namespace baton
