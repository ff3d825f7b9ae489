// SPDX-License-Identifier: Apache-2.0
// EarlySequence: a prompt that is prefilled before all of it is known. Its tokens grow as the parts become known and as
// the requests that it follows decode; whatever turns out otherwise is taken back to the first token that differs, so
// what it holds is always exact for the tokens it was computed from.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/model/step_rows.h"
#include "engine/request.h"

namespace baton {

/// Tokens that a running request has decoded so far; null: there is no such request.
using DecodedTokens = std::function<const std::vector<TokenId>*(RequestId)>;

class EarlySequence {
 public:
  EarlySequence(EarlyId id, EarlyPrompt prompt);

  EarlyId id() const { return id_; }
  const EarlyPrompt& prompt() const { return prompt_; }

  /// Other parts than before, in part or wholly.
  void update(std::vector<EarlyPart> parts, bool complete);
  /// Takes in what the followed requests have decoded since.
  void refresh(const DecodedTokens& decoded);
  /// A followed request is over with these tokens, or without any (null), and then nothing behind it is known.
  void ended(RequestId id, const std::vector<TokenId>* tokens);

  /// The tokens known so far, as many as there is room for.
  std::span<const TokenId> known() const { return known_; }
  /// All of the prompt is known.
  bool settled() const { return prompt_.complete && part_ == prompt_.parts.size(); }
  /// Tokens to run; none once it has been given up.
  std::int32_t backlog() const { return given_up_ ? 0 : static_cast<std::int32_t>(known_.size()) - done_; }
  void give_up() { given_up_ = true; }

  bool started() const { return cache_.has_value(); }
  /// Positions [0, placed) of the cache hold an exact prefix already.
  void start(KvCache cache, std::int32_t placed);
  std::size_t bytes() const { return cache_ ? cache_->bytes() : 0; }

  /// Adds rows to a step. True when the last of them is the prompt's last, whose logits are wanted.
  bool add_rows(std::int32_t count, StepRows& step);
  /// The step with `count` rows succeeded; `logits` [V] of the prompt's last token, or empty.
  void commit(std::int32_t count, std::span<const float> logits);

  /// What a request for `prompt` can take over.
  struct Taken {
    KvCache cache;
    std::int32_t placed = 0;    // positions that came from a prefix
    std::int32_t ahead = 0;     // up to here they were run before all of the prompt was known
    std::int32_t length = 0;    // positions that are in place
    std::vector<float> logits;  // [V] of the prompt's last token; empty: it is still to be run
  };
  /// Ends the early sequence. None when nothing was run, or the cache is not what the request needs.
  std::optional<Taken> take(std::span<const TokenId> prompt, std::int32_t positions, const KvLayout& layout);

 private:
  void keep_first(std::size_t count);

  EarlyId id_;
  EarlyPrompt prompt_;
  std::vector<TokenId> known_;
  std::size_t part_ = 0;        // the first that may still grow
  std::size_t part_begin_ = 0;  // its place in known_
  std::optional<KvCache> cache_;
  bool whole_ = false;  // all of the prompt was known from the beginning
  std::int32_t placed_ = 0;
  std::int32_t ahead_ = 0;
  std::int32_t done_ = 0;  // tokens whose KV is in the cache, or will be placed there
  std::vector<float> logits_;
  std::map<RequestId, std::vector<TokenId>> ended_;  // what those said that were followed
  bool given_up_ = false;
};

}  // namespace baton
