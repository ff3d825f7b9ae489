// SPDX-License-Identifier: Apache-2.0
// Sequence: one running request. It owns the request's state and KV cache, and combines PromptProgress, AnswerWriter
// and Speculation (drafts, tentative answers).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_store.h"
#include "engine/loop/answer_writer.h"
#include "engine/loop/kv_lookup.h"
#include "engine/loop/prompt_assembly.h"
#include "engine/loop/relay_probe.h"
#include "engine/loop/speculation.h"
#include "engine/reuse/decision.h"

namespace baton {

/// KV that a waiting request reads from the disk store (engine/kv/kv_store.h). A plain record of data.
struct FromStore {
  enum class Step : std::uint8_t { before, beginning, texts, over };
  struct Part {
    std::size_t part = 0;  // index of the prompt's part, if a text is loaded
    std::shared_ptr<KvLoad> load;
  };
  Step step = Step::before;
  Clock::time_point begin, due;  // the request waits until `due` at the latest
  std::vector<Part> loads;       // loads of the prompt's beginning or of texts
};

/// A request, its progress and its result. A plain record of data.
struct RequestState {
  RequestId id = 0;
  GenerationRequest request;
  ReuseDecision decision;  // how the request reuses KV
  GenerationResult result;
  std::int32_t prompt_length = 0;
  std::vector<TokenId> tokens;  // the prompt and the answer so far
  Clock::time_point submitted;
  Lead lead;  // the sequence that this one waits for before it starts
  FromStore stored;
  std::shared_ptr<MeasuredTurn> measured;  // keeps the logits of the answer's first rows; null: not measured
  std::shared_ptr<MeasuredTurn> probe;     // the turn that this probe measures; null: it is no probe

  /// Maximum number of positions that the sequence can fill.
  std::int32_t max_positions() const { return prompt_length + request.max_tokens; }
  std::span<const TokenId> prompt() const { return std::span(tokens).first(static_cast<std::size_t>(prompt_length)); }
};

/// Only the engine's thread may use it, except for the constructor.
class Sequence {
 public:
  /// `masks`: token masks of the request's constraint; null: no constraint.
  Sequence(RequestId id, GenerationRequest request, ReuseDecision decision, const Model& model,
           std::shared_ptr<TokenMasks> masks);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  RequestState state;
  PromptProgress prompt;
  AnswerWriter answer;
  Speculation speculation;

  RequestId id() const { return state.id; }
  const GenerationRequest& request() const { return state.request; }
  GenerationResult& result() { return state.result; }

  /// Method verified. The sequence writes on approximate KV, while the early prompt `twin` gets exact KV of the same
  /// tokens.
  void be_tentative(EarlyId twin);
  /// The KV of the prompt will be exact: nothing is handed over.
  void be_exact();
  /// Frees the tentative KV. The sequence can then be started again, on exact KV with its own output as the draft. If
  /// this throws, nothing has changed.
  void begin_check();

  /// Makes the sequence runnable. `cache` holds all reused KV; `assembly` holds the schedule of the rest.
  void start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times);
  KvCache& cache() { return *cache_; }
  const KvCache& cache() const { return *cache_; }
  std::size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

  bool decoding() const { return prompt.is_complete(); }
  /// Number of rows left to run. While decoding, these are the rows of the newest token and of the draft.
  std::int32_t pending() const;
  /// Adds rows to a step: at least `share` rows of the prompt or, while decoding, all pending rows. Returns the number
  /// of added rows.
  std::int32_t add_rows(std::int32_t share, StepRows& step);
  /// Reports that the step succeeded. `paths`: the layers that each added row actually ran through.
  void commit(std::span<const RowPath> paths, const StepTimes& times);

  /// What happens after a token was chosen.
  enum class Next : std::uint8_t { end, step, drafted };
  /// Appends a token chosen with AnswerWriter::choice. Returns `end` if the sequence has ended, and `drafted` if the
  /// token is the next one of the draft, so that the logits after it are valid, too.
  Next advance(const ChosenToken& chosen, DraftLength& drafts);
  /// Chooses and appends the next token from the newest logits [V]. `scratch`: as in Sampler::choose.
  Next advance(std::span<const float> logits, std::vector<float>& scratch, DraftLength& drafts);

  /// Drops the KV of drafted tokens that were not chosen. Called when the sequence is cut off.
  void keep_chosen();
  /// Ends the sequence: completes the result except for its segments, and keeps the cache. `reason`: eos if the answer
  /// ended by itself, even by a stop string or max_tokens; the result then gets AnswerWriter::reason().
  void close(FinishReason reason, const std::string& error);
  /// Called instead of close() after close() threw.
  void fail(const char* error) noexcept;
  /// Frees the KV cache and then calls on_finished, once.
  void deliver();

 private:
  Next score(std::span<const float> logits);
  bool must_decide_again(const std::optional<Decision>& decision);
  void drop_tentative() noexcept;
  void begin_output();

  const Model& model_;
  std::optional<KvCache> cache_;
  float prompt_entropy_ = 0.0f;         // entropy after the prompt, kept while choices are scored
  std::optional<std::size_t> doubted_;  // Decision::best on handed-over KV, until it is decided again
};

/// Returns at most `max_tokens` tokens that may come next. They are certain for a forced answer, a check and a choice
/// that is scored. Empty while the prompt runs.
Draft find_draft(const Sequence& sequence, std::int32_t max_tokens);

/// True while a choice of the request is being scored.
bool is_scoring(const Sequence& sequence);

/// True if the backend can choose the next token, because nothing on the host needs the logits.
bool chooses_alone(const Sequence& sequence);

/// Returns the exact KV of the first tokens, for prompts that begin with the same tokens. It has no cache if the
/// sequence is not running, its method keeps no prefixes, or some of its KV was read from a file.
LivePrefix live_prefix(const Sequence& sequence);

/// True if some of the request's KV was read from a file. Other prompts must not use it.
inline bool has_imported_kv(const GenerationRequest& request) {
  return request.context && request.context->imported_kv;
}

}  // namespace baton
