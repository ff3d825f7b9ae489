// SPDX-License-Identifier: Apache-2.0
// Sequence: one running request. It owns the request's state and its KV cache, and joins three parts: the progress of
// the prompt, the writing of the answer, and speculation (drafts, tentative answers).
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

/// KV that a waiting request takes from the store. A plain record of data.
struct FromStore {
  enum class Step : std::uint8_t { before, beginning, texts, over };
  struct Part {
    std::size_t part = 0;  // of the prompt, of a text
    std::shared_ptr<KvLoad> load;
  };
  Step step = Step::before;
  Clock::time_point begin, due;  // it waits until `due` at most
  std::vector<Part> loads;       // the prompt's beginning, or texts
};

/// What a request is and what became of it. A plain record of data.
struct RequestState {
  RequestId id = 0;
  GenerationRequest request;
  ReuseDecision decision;  // about the request's reuse
  GenerationResult result;
  std::int32_t prompt_length = 0;
  std::vector<TokenId> tokens;  // the prompt and the answer so far
  Clock::time_point submitted;
  Lead lead;  // the sequence that this one waits for before it starts
  FromStore stored;
  std::shared_ptr<MeasuredTurn> measured;  // keeps the logits of the answer's first rows; null: not measured
  std::shared_ptr<MeasuredTurn> probe;     // the turn that it measures, in rows that nothing else needs; null: none

  /// Maximum number of positions that the sequence can fill.
  std::int32_t max_positions() const { return prompt_length + request.max_tokens; }
  std::span<const TokenId> prompt() const { return std::span(tokens).first(static_cast<std::size_t>(prompt_length)); }
};

/// Used by the engine's thread only, except for the construction.
class Sequence {
 public:
  /// `masks`: those of the request's constraint; null: it has none.
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
  /// Frees the tentative KV. The sequence can be started again, on exact KV; what it wrote is then its draft. If this
  /// throws, nothing has changed.
  void begin_check();

  /// Makes the sequence runnable. `cache` holds all reused KV; `assembly` holds the schedule of the rest.
  void start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times);
  KvCache& cache() { return *cache_; }
  const KvCache& cache() const { return *cache_; }
  std::size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

  bool decoding() const { return prompt.is_complete(); }
  /// Number of rows left to run; while decoding, those of the newest token and of the draft.
  std::int32_t pending() const;
  /// Adds rows to a step: of the prompt, `share` of them or more; while decoding, all that are pending. Returns their
  /// number.
  std::int32_t add_rows(std::int32_t share, StepRows& step);
  /// Reports that the step succeeded. `paths`: the layers that each added row actually ran through.
  void commit(std::span<const RowPath> paths, const StepTimes& times);

  /// What follows the choice of a token.
  enum class Next : std::uint8_t { end, step, drafted };
  /// Appends the token that was chosen with AnswerWriter::choice. Returns end when the sequence has ended, and drafted
  /// when the token is the next of the draft, so that the logits behind it are valid too.
  Next advance(const ChosenToken& chosen, DraftLength& drafts);
  /// Chooses and appends the next token from the newest logits [V], which are overwritten.
  Next advance(std::span<float> logits, DraftLength& drafts);

  /// Drops the KV of drafted tokens that were not chosen, when the sequence is cut off.
  void keep_chosen();
  /// Ends the sequence: completes the result except for its segments, and keeps the cache. `reason`: eos if the answer
  /// ended by itself, also by a stop string or max_tokens; the result then has AnswerWriter::reason().
  void close(FinishReason reason, const std::string& error);
  /// Takes the place of a close() that threw.
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
  float prompt_entropy_ = 0.0f;         // of the distribution behind the prompt, while the choices run
  std::optional<std::size_t> doubted_;  // Decision::best on handed-over KV, of the decision that is made again
};

/// Returns what may come next, at most `max_tokens` tokens. For a forced answer, a check or a choice that is scored,
/// these are the next tokens, which are certain. Empty while the prompt runs.
Draft find_draft(const Sequence& sequence, std::int32_t max_tokens);

/// True while one of the given choices runs in order to be scored.
bool is_scoring(const Sequence& sequence);

/// True when the backend can choose the next token by itself: nothing on the host needs the logits, so that they may
/// stay on the device.
bool chooses_alone(const Sequence& sequence);

/// Returns the exact KV of the first tokens, for prompts that begin with the same tokens. It has no cache when the
/// sequence is not running, its method keeps no prefixes, or some of its KV was read from a file.
LivePrefix live_prefix(const Sequence& sequence);

/// True when some of the request's KV was read from a file. It is not for other prompts.
inline bool has_imported_kv(const GenerationRequest& request) {
  return request.context && request.context->imported_kv;
}

}  // namespace baton
