// SPDX-License-Identifier: Apache-2.0
// EarlySequence: a prompt that is prefilled before all of it is known. PrefillAhead: the early prompts of an engine,
// and the rows that each step adds for them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/local_engine.h"
#include "engine/loop/kv_lookup.h"
#include "engine/loop/step_plan.h"
#include "engine/model/rope.h"
#include "engine/model/step.h"
#include "engine/reuse/decision.h"

namespace baton {

/// Returns the tokens that a running request has decoded so far, or null when the request is not running.
using DecodedTokens = std::function<const std::vector<TokenId>*(RequestId)>;

/// What is known of the parts of a prompt.
class KnownParts {
 public:
  /// Appends what is known now, up to `longest` tokens in all.
  void extend(const std::vector<EarlyPart>& parts, std::int32_t longest, const DecodedTokens& decoded);
  void keep_first(std::size_t count) { tokens_.resize(count); }

  const std::vector<TokenId>& tokens() const { return tokens_; }
  std::size_t part() const { return part_; }    // index of the first part that may still grow
  std::size_t begin() const { return begin_; }  // begin of that part in tokens()

 private:
  std::vector<TokenId> tokens_;
  std::size_t part_ = 0;
  std::size_t begin_ = 0;
};

/// A prompt that is prefilled before all of it is known. Its tokens grow when parts become known and when the requests
/// that it follows decode. When a known token changes, the KV of that token and of all behind it is discarded, so the
/// KV is always exact for the tokens that it was computed from.
class EarlySequence {
 public:
  EarlySequence(EarlyId id, EarlyPrompt prompt, ReuseDecision decision);

  EarlyId id() const { return id_; }
  const EarlyPrompt& prompt() const { return prompt_; }
  const ReuseDecision& decision() const { return decision_; }

  /// Replaces the parts; the KV of the common prefix is kept. If it throws, nothing has changed.
  void update(std::vector<EarlyPart> parts, bool complete);
  /// Appends the tokens that the followed requests have decoded since the last call.
  void refresh(const DecodedTokens& decoded);
  /// Reports that a followed request has ended with these tokens. Null: it has no answer, so nothing after its part is
  /// known.
  void ended(RequestId id, const std::vector<TokenId>* tokens);

  /// Returns the tokens known so far, at most EarlyPrompt::longest.
  std::span<const TokenId> known() const { return known_.tokens(); }
  /// True when all of the prompt is known.
  bool settled() const { return prompt_.complete && known_.part() == prompt_.parts.size(); }
  /// Number of tokens left to run; 0 after give_up().
  std::int32_t backlog() const { return given_up_ ? 0 : static_cast<std::int32_t>(known_.tokens().size()) - done_; }
  void give_up() { given_up_ = true; }
  /// Reports that the prompt's request has come: what runs from now on is not ahead of it.
  void submitted() { submitted_ = true; }

  bool started() const { return cache_.has_value(); }
  /// Sets the cache; its positions [0, placed) already hold an exact prefix.
  void start(KvCache cache, std::int32_t placed);
  std::size_t bytes() const { return cache_ ? cache_->bytes() : 0; }

  /// Returns the exact KV of the first tokens, for prompts that begin with the same tokens. It has no cache when the
  /// sequence has not started, its method keeps no prefixes, or some of its KV was read from a file.
  LivePrefix live() const;

  /// Adds `count` rows to a step. Returns true when the last row is the prompt's last token, whose logits are needed.
  bool add_rows(std::int32_t count, StepRows& step);
  /// Reports that the step with `count` rows succeeded. `logits`: [V] of the prompt's last token, or empty.
  void commit(std::int32_t count, std::span<const float> logits);

  /// The state that a request takes over.
  struct Taken {
    KvCache cache;
    std::int32_t placed = 0;    // positions [0, placed) came from a prefix
    std::int32_t ahead = 0;     // positions [placed, ahead) were run before all of the prompt was known
    std::int32_t length = 0;    // positions [0, length) hold KV
    std::vector<float> logits;  // [V] of the prompt's last token; empty: that token has not been run
  };
  /// Ends the early sequence and returns its state. Returns nothing when no row was run, or when the cache has another
  /// layout or too few positions.
  std::optional<Taken> take(std::span<const TokenId> prompt, std::int32_t positions, const KvLayout& layout);

 private:
  void keep_first(std::size_t count);
  void want_states();

  EarlyId id_;
  EarlyPrompt prompt_;
  ReuseDecision decision_;
  KnownParts known_;
  std::optional<KvCache> cache_;
  bool whole_ = false;  // all of the prompt was known at the beginning
  std::int32_t placed_ = 0;
  std::int32_t ahead_ = 0;
  std::int32_t done_ = 0;  // tokens whose KV is in the cache or will be placed there
  std::vector<float> logits_;
  std::map<RequestId, std::vector<TokenId>> ended_;  // answers of followed requests that have ended
  bool given_up_ = false;
  bool submitted_ = false;
};

/// The early prompts of an engine, and the rows that each step adds for them. Used by the engine's thread only.
class PrefillAhead {
 public:
  PrefillAhead(Backend& backend, const Model& model, RopeTable& angles, PrefixCache& prefixes, SpareRows& spare,
               const LocalEngineOptions& options);

  void prepare(EarlyId id, EarlyPrompt prompt, ReuseDecision decision);
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete);
  void forget(EarlyId id);
  /// Reports that the request of the early prompt has come, and waits for the rest of it.
  void submitted(EarlyId id);
  void clear() { early_.clear(); }

  /// Appends the tokens that running requests have decoded to the prompts that follow them.
  void refresh(const DecodedTokens& decoded);
  /// Reports that a request has ended. `tokens`: its answer, or null when the request failed.
  void ended(RequestId id, const std::vector<TokenId>* tokens);

  /// Returns the KV that was computed ahead for a request whose prompt is `prompt`; see EarlySequence::take.
  std::optional<EarlySequence::Taken> take(EarlyId id, std::span<const TokenId> prompt, std::int32_t positions,
                                           const KvLayout& layout);

  /// Evicts the started early prompt that is needed last, other than `but`. Returns false when there is none.
  bool evict_last(EarlyId but);

  std::int64_t bytes() const;
  std::int64_t bytes_of(EarlyId id) const;

  /// Appends the exact KV of the early prompts that have started. Nobody waits for it, since a submitted prompt has
  /// priority over rows ahead.
  void add_live(std::vector<LivePrefix>& live) const;
  /// True while the early prompt exists.
  bool has(EarlyId id) const { return index_of(id) < early_.size(); }
  /// True when all of the early prompt has run.
  bool complete(EarlyId id) const;
  /// Returns the number of first tokens of a prompt whose KV was computed ahead for it.
  std::int32_t computed(EarlyId id, std::span<const TokenId> prompt) const;

  /// True when an early prompt has rows to run, given that its cache may use `free_bytes`. `running`: the exact KV of
  /// the running requests, here and below.
  bool has_work(std::int64_t free_bytes, std::span<const LivePrefix> running) const;

  /// Adds rows to a step with `decoding` rows of sequences that decode. Adds none when the step is `prefilling`, that
  /// is, holds rows of submitted prompts. The logits of prompts' last tokens are appended to those that the step
  /// already asks for, so these come in three groups: rows for which the backend chooses a token, rows of sequences
  /// that get their logits, rows of early prompts. `at_least`: rows that it may add even if they are not spare.
  void add_rows(StepRows& step, std::int32_t decoding, bool prefilling, std::int64_t free_bytes,
                std::span<const LivePrefix> running, std::int32_t at_least = 0);
  /// Reports that the step succeeded. `logits`: the rows that add_rows asked for, [n, V].
  void commit(std::span<const float> logits);
  /// Drops the early prompts that took part in a failed step. Returns false when none took part.
  bool drop_parts();

  std::int32_t rows() const;  // rows that the last add_rows added

 private:
  struct Part {
    EarlySequence* sequence;
    std::int32_t rows;
    bool logits;
  };

  std::size_t index_of(EarlyId id) const;
  bool start(EarlySequence& sequence, std::int64_t& free_bytes, std::span<const LivePrefix> live);
  std::vector<LivePrefix> live_of(std::span<const LivePrefix> running) const;
  bool waits(const EarlySequence& sequence, std::span<const LivePrefix> live) const;

  Backend& backend_;
  const Model& model_;
  RopeTable& angles_;
  PrefixCache& prefixes_;
  std::int32_t max_rows_;
  SpareRows& spare_;
  std::vector<std::unique_ptr<EarlySequence>> early_;  // ascending ids; the oldest is served first
  std::vector<Part> parts_;                            // of the current step
};

}  // namespace baton
