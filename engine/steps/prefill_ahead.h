// SPDX-License-Identifier: Apache-2.0
// PrefillAhead: the early prompts of an engine, and the rows of each step that are spared for them.
#pragma once

#include <memory>
#include <vector>

#include "engine/local_engine.h"
#include "engine/model/rope_table.h"
#include "engine/steps/early_sequence.h"
#include "engine/steps/prefix_cache.h"
#include "engine/steps/spare_rows.h"

namespace baton {

/// The engine's thread only.
class PrefillAhead {
 public:
  PrefillAhead(Backend& backend, const Model& model, RopeTable& angles, PrefixCache& prefixes,
               const LocalEngineOptions& options);

  void prepare(EarlyId id, EarlyPrompt prompt);
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete);
  void forget(EarlyId id);
  void clear() { early_.clear(); }

  /// Takes in what running requests have decoded.
  void refresh(const DecodedTokens& decoded);
  /// A request is over; `tokens` are null when its answer does not count.
  void ended(RequestId id, const std::vector<TokenId>* tokens);

  /// The KV that was computed for a request whose prompt is `prompt`; see EarlySequence::take.
  std::optional<EarlySequence::Taken> take(EarlyId id, std::span<const TokenId> prompt, std::int32_t positions,
                                           const KvLayout& layout);

  /// Takes the memory of the prompt that is needed last, but not of `but`. False when there is none to take.
  bool give_back(EarlyId but);

  std::int64_t bytes() const;
  std::int64_t bytes_of(EarlyId id) const;

  /// There is something to run, given that `free_bytes` may be taken for caches.
  bool has_work(std::int64_t free_bytes) const;

  /// Adds rows to a step that has `decoding` sequences' rows, and, where `prefilling`, rows of prompts: then none.
  /// Rows of prompts' last tokens ask for their logits behind those that the step asks for already.
  void add_rows(StepRows& step, std::int32_t decoding, bool prefilling, std::int64_t free_bytes);
  /// The step took so long; `logits` are those that add_rows asked for.
  void commit(double milliseconds, std::span<const float> logits);
  /// The step failed: what took part is dropped. False when nothing had.
  bool drop_parts();

  std::int32_t knee() const { return spare_.knee(); }
  std::int32_t rows() const;  // of the step that add_rows was called for

 private:
  struct Part {
    EarlySequence* sequence;
    std::int32_t rows;
    bool logits;
  };

  std::size_t index_of(EarlyId id) const;
  bool start(EarlySequence& sequence, std::int64_t& free_bytes);
  KvLayout layout_for(const EarlySequence& sequence) const;
  std::int64_t bytes_for(const EarlySequence& sequence) const;

  Backend& backend_;
  const Model& model_;
  RopeTable& angles_;
  PrefixCache& prefixes_;
  std::int32_t max_rows_;
  SpareRows spare_;
  std::vector<std::unique_ptr<EarlySequence>> early_;  // by id: the oldest is served first
  std::vector<Part> parts_;                            // of the step
  std::int32_t decoding_ = 0;                          // sequences in it
  bool prefilling_ = false;
};

}  // namespace baton
