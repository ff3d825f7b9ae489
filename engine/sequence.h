// Sequence: one running request. Knows its tokens, its KV cache and how its output becomes text; the scheduler and
// the step loop move it forward.
#pragma once

#include <chrono>
#include <optional>

#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/stop_strings.h"

namespace baton {

using Clock = std::chrono::steady_clock;

class Sequence {
 public:
  Sequence(RequestId id, GenerationRequest request, const Model& model);

  RequestId id() const { return id_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // prompt and output
  std::int32_t prompt_length() const { return prompt_length_; }
  /// Positions the sequence may ever fill.
  std::int32_t longest() const { return prompt_length_ + request_.max_tokens; }

  void give_cache(KvCache cache) { cache_.emplace(std::move(cache)); }
  KvCache& cache() { return *cache_; }
  std::size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }

  /// Tokens that no step has run yet; 1 while decoding.
  std::int32_t pending() const { return static_cast<std::int32_t>(tokens_.size()) - cache_->length(); }
  bool decoding() const { return cache_->length() >= prompt_length_; }

  void on_step_begin(Clock::time_point now);

  /// Samples the next token from the logits of the newest one. True when the sequence has ended.
  bool advance(std::span<float> logits);

  /// Ends the sequence, gives back its KV cache and then calls on_finished, once.
  void finish(FinishReason reason, const std::string& error = {});

 private:
  void emit(TokenId id, const std::string& text);
  void drop_tokens_after_stop();

  RequestId id_;
  GenerationRequest request_;
  const Model& model_;
  std::int32_t prompt_length_ = 0;
  std::vector<TokenId> tokens_;
  std::optional<KvCache> cache_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStrings stops_;
  std::vector<std::size_t> text_length_;  // decoded bytes after each output token
  GenerationResult result_;
  FinishReason reason_ = FinishReason::eos;
  Clock::time_point submitted_;
  Clock::time_point first_step_{};
  Clock::time_point first_token_{};
};

}  // namespace baton
