// SPDX-License-Identifier: Apache-2.0
// PrefillAhead: the early prompts of an engine, and the rows that each step adds for them.
#pragma once

#include <memory>
#include <vector>

#include "engine/local_engine.h"
#include "engine/loop/early_sequence.h"
#include "engine/loop/prefix_cache.h"
#include "engine/loop/spare_rows.h"
#include "engine/model/rope.h"

namespace baton {

/// Used by the engine's thread only.
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

  /// Adds rows to a step with rows of `decoding` sequences. Adds none when the step is `prefilling`, that is, holds
  /// rows of submitted prompts. The logits of prompts' last tokens are appended to those that the step already asks
  /// for. `at_least`: rows that it may add even if they are not spare.
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
