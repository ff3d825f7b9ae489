// SPDX-License-Identifier: Apache-2.0
// EngineCore: what StepEngine and its thread share. Functions of the first part may be called from any thread; the rest
// belongs to the engine's thread. A step is a transaction: plan rows, reserve, run, commit or fail the requests that
// took part.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/local_engine.h"
#include "engine/model/forward.h"
#include "engine/steps/prefill_ahead.h"
#include "engine/steps/sequence.h"

namespace baton {

class EngineCore {
 public:
  EngineCore(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options);
  RequestId submit(GenerationRequest request);
  void cancel(RequestId id);
  EarlyId prepare(EarlyPrompt prompt);
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete);
  void forget(EarlyId id);
  void park();
  void stop();
  void loop();

  const Model& model() const { return *model_; }
  const EngineInfo& info() const { return info_; }
  EngineStats stats() const;
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const { return store_.peek(handle); }
  std::shared_ptr<const Segment> portable(const SegmentHandle& handle) const;
  void set_corrections(std::shared_ptr<const Corrections> corrections);
  std::shared_ptr<const Corrections> corrections() const;
  AnchorStore& anchors() { return anchors_.store(); }
  LayerRange layer_range() const;
  void set_layer_range(LayerRange range);

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
  void resolve(ReuseOptions& reuse) const;
  std::size_t bytes_for(const GenerationRequest& request, std::int32_t positions) const;

  /// Sleeps until there is something to do; false when the engine is to end.
  bool wait_for_work();

  /// For caches of early prompts: requests that wait come first.
  std::int64_t free_bytes() const;
  void apply_cancels();
  void admit();

  /// Returns the logits of the prompt's last token where they were computed ahead.
  std::vector<float> start(Sequence& sequence);
  void step();

  /// Sequences whose segments are still on their way from host memory have them placed layer by layer.
  void wait_for_layers(const std::vector<Part>& parts);

  /// What a request has decoded so far; null when it is not running.
  const std::vector<TokenId>* decoded(RequestId id) const;
  void sample(const std::vector<Sequence*>& sequences, std::span<const float> logits);

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
  void follow(Sequence& sequence);
  void end(Sequence* sequence, FinishReason reason, const std::string& error);
  void end(List& list, List::iterator at, FinishReason reason, const std::string& error);

  /// The step has said how long copying took the sequences that were started before it.
  void take_copy_times();
  void count_kv(std::int64_t bytes);

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

}  // namespace baton
