// SPDX-License-Identifier: Apache-2.0
// TokenMasks: which tokens may come next, for a grammar and a vocabulary; and AnswerMatcher, where one answer stands.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/constrain/grammar_states.h"
#include "engine/text/constrain/token_trie.h"

namespace baton {

/// The vocabulary of a model: all that masks need to know of it. Immutable and safe from any thread.
struct MaskVocabulary {
  /// `size`: the model's number of ids; `eos`: ids that end an answer. Reads every token: takes about a tenth of a
  /// second and throws as Tokenizer::read_tokens.
  MaskVocabulary(const Tokenizer& tokenizer, std::int32_t size, std::span<const TokenId> eos,
                 const std::stop_token& stop = {});

  std::int32_t size;
  std::vector<TokenId> eos;                // allowed exactly where the answer may end
  std::shared_ptr<const TokenTrie> later;  // of the tokens behind the first
  std::shared_ptr<const TokenTrie> first;  // of the first token; mostly the same: some tokenizers drop a blank there
};

/// One bit for each id, 32 in a word.
using TokenMask = std::span<const std::uint32_t>;
inline bool allows(TokenMask mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 32] >> (static_cast<std::size_t>(id) % 32) & 1u) != 0;
}

/// Masks by state of the grammar, in a bounded cache; one thread at a time.
class TokenMasks {
 public:
  /// `max_bytes`: of the cached masks; those of 150,000 ids take 19 KB each.
  TokenMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const MaskVocabulary> vocabulary,
             std::size_t max_bytes = std::size_t{16} << 20);

  using Places = std::shared_ptr<const GrammarPlaces>;

  Places start();
  /// The mask at these places, valid until the next call of a member. Throws std::runtime_error when it takes too many
  /// steps: the grammar is too ambiguous.
  TokenMask mask(const Places& places, bool first);
  /// The places behind a token; null when the token is not allowed.
  Places next(const Places& places, bool first, TokenId token);
  /// True when the text is whole and nothing can follow.
  static bool complete(const Places& places) { return places->ends && places->places.empty(); }

  std::size_t cached() const { return masks_.size(); }

 private:
  GrammarStates::State* state_of(const Places& places);
  void walk(const TokenTrie& trie, GrammarStates::State* state, std::vector<std::uint32_t>& bits);

  GrammarStates states_;
  std::size_t max_bytes_;
  std::shared_ptr<const MaskVocabulary> vocabulary_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> masks_;  // by id of the state, and whether it is first
  std::vector<GrammarStates::State*> path_;                              // scratch
};

/// Where one answer stands. A copy goes its own way; one thread at a time for all matchers of the same masks.
class AnswerMatcher {
 public:
  explicit AnswerMatcher(std::shared_ptr<TokenMasks> masks) : masks_(std::move(masks)) {}

  /// The tokens that may come next, valid until the next call for the same masks. Throws as TokenMasks::mask.
  TokenMask allowed() { return masks_->mask(places(), first_); }
  /// Moves on behind a token. Returns false, without moving, for one that is not allowed.
  bool take(TokenId token);
  /// True when the answer is whole and nothing can follow.
  bool complete() { return TokenMasks::complete(places()); }
  /// True when the answer is whole.
  bool ends() { return places()->ends; }
  /// Goes back to the beginning of the answer.
  void restart();

 private:
  const TokenMasks::Places& places();

  std::shared_ptr<TokenMasks> masks_;
  TokenMasks::Places places_;  // null: the beginning
  bool first_ = true;
};

}  // namespace baton
