// SPDX-License-Identifier: Apache-2.0
// Sequence: one running request. Knows its tokens, its KV cache and how its output becomes text; the scheduler and
// the step loop move it forward.
#pragma once

#include <chrono>
#include <optional>

#include "engine/base/clock.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/forward.h"
#include "engine/request.h"
#include "engine/steps/prompt_assembly.h"
#include "engine/steps/stop_strings.h"

namespace baton {

class Sequence {
 public:
  Sequence(RequestId id, GenerationRequest request, const Model& model);

  RequestId id() const { return id_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // prompt and output
  std::int32_t prompt_length() const { return prompt_length_; }
  /// Positions the sequence may ever fill.
  std::int32_t longest() const { return prompt_length_ + request_.max_tokens; }

  const GenerationRequest& request() const { return request_; }

  /// The sequence may run: its cache, with all that could be reused in place, and what is left to run.
  void start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times);
  KvCache& cache() { return *cache_; }
  std::size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }
  const PromptAssembly& assembly() const { return *assembly_; }
  PromptAssembly& assembly() { return *assembly_; }

  /// Rows that no step has run yet; 1 while decoding.
  std::int32_t pending() const { return decoding() ? 1 : static_cast<std::int32_t>(rows().size() - next_row_); }
  bool decoding() const { return next_row_ == rows().size(); }

  /// Adds the next `share` rows to a step; more when a detection would be split. Returns how many.
  std::int32_t add_rows(std::int32_t share, StepRows& step);
  /// The step succeeded: `paths` are those of the rows that were added, as they were really run.
  void commit(std::span<const RowPath> paths, const StepTimes& times);

  void on_step_begin(Clock::time_point now);

  /// Nobody has to see the logits but who chooses the next token: they may stay on the device.
  bool chooses_alone() const;
  /// How the next token is to be chosen.
  TokenChoice choice() const;
  /// Takes the token that choice() gave. True when the sequence has ended.
  bool advance(const ChosenToken& chosen);
  /// The same from the logits of the newest token, which are scratch.
  bool advance(std::span<float> logits);

  /// Ends the sequence: the result is complete but for its segments, and the cache still there.
  void close(FinishReason reason, const std::string& error);
  GenerationResult& result() { return result_; }
  /// Of what each output token was drawn from, where the output is to become a segment; may have one more.
  const std::vector<float>& entropy() const { return entropy_; }
  /// Gives back the KV cache and then calls on_finished, once.
  void deliver();

 private:
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
  std::size_t next_row_ = 0;  // of the prompt's schedule
  SparseLayers sparse_;
  std::vector<std::int32_t> computed_;  // [prompt] layers whose KV was computed
  std::vector<bool> recomputed_;        // [prompt] text, or chosen by a detection
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStrings stops_;
  std::vector<std::size_t> text_length_;  // decoded bytes after each output token
  std::vector<float> entropy_;
  GenerationResult result_;
  FinishReason reason_ = FinishReason::eos;
  bool prefilled_ = false;  // the logits of the last prompt token have been there
  Clock::time_point submitted_;
  Clock::time_point first_step_{};
  Clock::time_point first_token_{};
};

}  // namespace baton
