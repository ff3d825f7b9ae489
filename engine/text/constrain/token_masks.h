// SPDX-License-Identifier: Apache-2.0
// TokenBytes: the bytes of all tokens of a vocabulary. TokenTrie: the same as one tree, so that tokens that begin alike
// are tried together.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/constrain/grammar.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The bytes of the tokens, one after another.
class TokenBytes {
 public:
  /// Adds those of the next id, from 0.
  void add(std::string_view bytes) {
    bytes_ += bytes;
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  TokenId size() const { return static_cast<TokenId>(ends_.size()); }
  /// Empty for ids that do not exist.
  std::string_view of(TokenId id) const;

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;  // for each id
};

/// Immutable and safe from any thread. Tokens without bytes are not in it.
class TokenTrie {
 public:
  /// Takes n log n steps of the tokens' bytes. Throws Interrupted soon after a stop was requested.
  explicit TokenTrie(TokenBytes bytes, const std::stop_token& stop = {});

  struct Node {
    std::uint32_t skip = 0;    // index of the first node that is not below this one
    std::uint32_t tokens = 0;  // index of the first token that ends here or below
    std::uint32_t depth = 0;   // bytes up to this node, with its own
    std::uint32_t own = 0;     // number of tokens that end here
    std::uint8_t byte = 0;
  };
  /// What stands at a node and below, so that all of it can be allowed at once.
  struct Below {
    std::array<std::uint64_t, 2> ascii{};  // the bytes among the first 128
    std::uint32_t length = 0;              // characters of the longest way down
    bool others = false;                   // there are other characters
    bool broken = false;                   // there are bytes that are no UTF-8
  };

  /// In depth-first order, without a root.
  std::span<const Node> nodes() const { return nodes_; }
  /// Ids in the order of the nodes.
  std::span<const TokenId> tokens() const { return tokens_; }
  const Below& below(std::size_t node) const { return below_[node]; }
  /// The index of the first token that does not end at this node or below.
  std::size_t tokens_end(const Node& node) const {
    return node.skip < nodes_.size() ? nodes_[node.skip].tokens : tokens_.size();
  }
  std::size_t max_depth() const { return max_depth_; }
  std::string_view bytes_of(TokenId id) const { return bytes_.of(id); }

 private:
  std::vector<Node> nodes_;
  std::vector<Below> below_;  // for each node
  std::vector<TokenId> tokens_;
  TokenBytes bytes_;
  std::size_t max_depth_ = 0;
};

// TokenMasks: which tokens may come next, for a grammar and a vocabulary; and AnswerMatcher, where one answer stands.

/// The vocabulary of a model: all that masks need to know of it. Immutable and safe from any thread.
struct MaskVocabulary {
  /// `size`: the model's number of ids; `eos`: ids that end an answer. Reads every token: takes about a tenth of a
  /// second and throws as Tokenizer::read_tokens.
  MaskVocabulary(const Tokenizer& tokenizer, std::int32_t size, std::span<const TokenId> eos,
                 const std::stop_token& stop = {});

  std::int32_t size;
  std::vector<TokenId> eos;  // allowed exactly where the answer may end
  // In both, special tokens but `eos` have the bytes of special_text(): they are allowed where a grammar names them.
  std::shared_ptr<const TokenTrie> later;  // tokens behind the first
  std::shared_ptr<const TokenTrie>
      first;  // tokens that come first; mostly the same: some tokenizers drop a blank there
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
