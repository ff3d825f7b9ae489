// SPDX-License-Identifier: Apache-2.0
// Sequence: one running request. It owns its tokens, its KV cache and the decoding of its output to text; the scheduler
// and the step loop advance it.
#pragma once

#include <chrono>
#include <optional>

#include "engine/base/clock.h"
#include "engine/kv/kv_cache.h"
#include "engine/loop/choice_scores.h"
#include "engine/loop/speculation.h"
#include "engine/loop/prompt_assembly.h"
#include "engine/loop/relay_probe.h"
#include "engine/model/forward.h"
#include "engine/request.h"
#include "engine/text/constrain/token_masks.h"
#include "engine/text/stop_strings.h"

namespace baton {

class Sequence {
 public:
  /// `masks`: of the request's constraint; null where it has none.
  Sequence(RequestId id, GenerationRequest request, const Model& model, std::shared_ptr<TokenMasks> masks);

  RequestId id() const { return id_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // prompt and output
  std::int32_t prompt_length() const { return prompt_length_; }
  /// Maximum number of positions that the sequence can fill.
  std::int32_t max_positions() const { return prompt_length_ + request_.max_tokens; }

  const GenerationRequest& request() const { return request_; }

  /// Method verified. A tentative sequence writes on approximate KV, while the early prompt `twin` of its request gets
  /// exact KV of the same tokens.
  void be_tentative(EarlyId twin);
  bool is_tentative() const { return tentative_; }
  /// Its tentative answer has ended, and waits for its check, which begins when the step is over.
  void end_tentative() { written_ = true; }
  bool is_written() const { return written_; }
  /// The KV of the prompt will be exact: nothing is handed over.
  void be_exact() {
    request_.reuse.tolerance = 0.0f;
    tentative_ = false;
  }
  /// Ends the tentative part and frees its KV. The sequence can be started again, with exact KV; what it wrote is then
  /// its draft. Where it throws, nothing has changed.
  void begin_check();

  /// The logits of the answer's first rows are kept, for a probe.
  void measure(std::shared_ptr<MeasuredTurn> measured) { measured_ = std::move(measured); }
  const std::shared_ptr<MeasuredTurn>& measured() const { return measured_; }
  /// A probe takes only rows that nothing else needs.
  void be_probe() { probe_ = true; }
  bool is_probe() const { return probe_; }

  /// Makes the sequence runnable. `cache` holds all reused KV; `assembly` holds the schedule of the rest.
  void start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times);
  KvCache& cache() { return *cache_; }
  std::size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }
  const PromptAssembly& assembly() const { return *assembly_; }
  PromptAssembly& assembly() { return *assembly_; }

  /// Some of the KV was read from a file, and is not for other prompts.
  bool has_imported_kv() const { return request_.context && request_.context->imported_kv; }

  /// The exact KV of the first tokens, for prompts that begin with the same tokens. Without a cache when the sequence
  /// is not running or its method keeps no prefixes.
  LivePrefix live() const;
  /// Before the start: a part of the prompt gets KV that another sequence has computed.
  void give(std::size_t part, SegmentHandle segment) {
    request_.prompt[part].segment = std::move(segment);
    request_.prompt[part].readers = 0;
  }
  /// Number of first tokens whose KV was stored as a prefix while the sequence ran.
  std::int32_t stored() const { return stored_; }
  void set_stored(std::int32_t tokens) { stored_ = tokens; }
  /// The sequence that this one waits for before it starts.
  const Lead& lead() const { return lead_; }
  void follow(Lead lead) { lead_ = lead; }

  /// Number of rows left to run; while decoding, those of the newest token and of the draft.
  std::int32_t pending() const {
    return static_cast<std::int32_t>(decoding() ? 1 + draft_.size() : rows().size() - next_row_);
  }
  bool decoding() const { return next_row_ == rows().size(); }

  /// What may come next, at most `max_tokens` tokens: of a forced answer its next tokens, which are certain. Empty
  /// while the prompt runs, and where dropped rows would leave traces (KvCache::truncate).
  Draft find_draft(std::int32_t max_tokens) const;
  bool is_forced() const { return !request_.forced.empty(); }
  /// True until the choices of the request are scored.
  bool has_choices() const { return scores_.has_value(); }
  /// True while they run, one after another.
  bool is_scoring() const { return scores_ && scores_->begun(); }
  /// True when the draft is what was written tentatively, all of which has to run.
  bool is_checking() const { return !check_.empty(); }
  /// The first `tokens` tokens of the draft run in the next step.
  void set_draft(const Draft& draft, std::int32_t tokens);
  /// Only the first `tokens` tokens of a forced answer's draft run in the next step.
  void shorten_draft(std::int32_t tokens) { draft_.resize(static_cast<std::size_t>(tokens)); }

  /// Adds the next `share` rows to a step, or more where that would split a detection. Returns the number of rows.
  std::int32_t add_rows(std::int32_t share, StepRows& step);
  /// Reports that the step succeeded. `paths`: the layers that each added row actually ran through.
  void commit(std::span<const RowPath> paths, const StepTimes& times);

  /// When the prompt has run and its guard measured too much: it runs again, exact, from its first approximate token.
  /// Returns true in that case; the logits of the step are then not those of the prompt.
  bool fall_back();

  void on_step_begin(Clock::time_point now);
  /// Calls on_prefill_progress when the prompt has rows left, some have run since it began or fell back, and the last
  /// call is at least `interval_ms` ago.
  void report_progress(Clock::time_point now, int interval_ms);

  Clock::time_point submitted_at() const { return submitted_; }
  /// When the logits of the prompt's last token were available.
  Clock::time_point prefilled_at() const { return prefilled_at_; }
  /// See prompt_deadline(). `row_ms`: time of a row.
  double deadline(double row_ms) const;

  /// True when only the choice of the next token needs the logits, so that they may stay on the device. A constraint is
  /// applied on the host.
  bool chooses_alone() const;
  /// The parameters of the next token's choice, or of the one `ahead` tokens later.
  TokenChoice choice(std::int32_t ahead = 0) const;
  /// What follows the choice of a token.
  enum class Next : std::uint8_t { end, step, drafted };
  /// Appends the token that was chosen with choice(). Returns end when the sequence has ended, and drafted when the
  /// token is the next of the draft, so that the logits behind it are valid too.
  Next advance(const ChosenToken& chosen, DraftLength& drafts);
  /// Chooses and appends the next token from the newest logits [V], which are overwritten.
  Next advance(std::span<float> logits, DraftLength& drafts);

  /// Drops the KV of drafted tokens that were not chosen, of a sequence that is cut off.
  void keep_chosen();
  /// Ends the sequence: completes the result except for its segments, and keeps the cache.
  void close(FinishReason reason, const std::string& error);
  /// Takes the place of a close() that threw.
  void fail(const char* error) noexcept;
  GenerationResult& result() { return result_; }
  /// Entropy of the distribution of each output token, where the output becomes a segment; may hold one more value.
  const std::vector<float>& entropy() const { return entropy_; }
  /// Frees the KV cache and then calls on_finished, once.
  void deliver();

 private:
  Next score(std::span<const float> logits);
  bool append(const ChosenToken& chosen);
  Draft allowed_part(Draft draft) const;
  bool is_constrained() const { return matcher_ && !is_forced(); }
  void drop_tentative();
  void compare_with_tentative(bool over);
  void emit(TokenId id, const std::string& text);
  void drop_tokens_after_stop();
  const std::vector<ScheduledRow>& rows() const { return assembly_->schedule.rows; }
  void begin_output();

  RequestId id_;
  GenerationRequest request_;
  const Model& model_;
  std::int32_t prompt_length_ = 0;
  std::vector<TokenId> tokens_;
  std::optional<KvCache> cache_;
  std::optional<PromptAssembly> assembly_;
  std::size_t next_row_ = 0;  // index into the prompt's schedule
  Lead lead_;
  std::int32_t stored_ = 0;
  std::vector<std::size_t> detection_ends_;  // of each detection: the index behind its last row
  SparseLayers sparse_;
  std::vector<std::int32_t> computed_;  // [prompt] number of layers whose KV was computed
  std::vector<bool> recomputed_;        // [prompt] text, or chosen by a detection
  std::vector<TokenId> draft_;          // tokens that run in the same step as the newest one
  std::int32_t drafted_ = 0;            // tokens of the draft that were chosen
  std::int32_t match_ = 0;              // of the token that is expected next
  std::optional<TokenId> expected_;     // by find_draft, whether or not it runs
  std::shared_ptr<MeasuredTurn> measured_;
  bool probe_ = false;
  bool tentative_ = false;
  bool written_ = false;                // the tentative answer has ended
  std::vector<TokenId> check_;          // tentative tokens whose check is not over
  std::optional<ChoiceScores> scores_;  // of a request with choices, until all are scored
  Sampler sampler_;
  std::optional<AnswerMatcher> matcher_;  // of a request with a constraint
  StreamDecoder decoder_;
  StopStrings stops_;
  std::vector<std::size_t> text_length_;  // decoded bytes after each output token
  std::vector<float> entropy_;
  float prompt_entropy_ = 0.0f;  // of the distribution behind the prompt, while the choices run
  GenerationResult result_;
  FinishReason reason_ = FinishReason::eos;
  bool prefilled_ = false;  // the logits of the last prompt token were available
  Clock::time_point submitted_;
  Clock::time_point first_step_{};
  Clock::time_point reported_{};
  Clock::time_point prefilled_at_{};
  Clock::time_point first_token_{};
};

}  // namespace baton
