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
#include <vector>

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
  std::vector<std::uint32_t> ends_;  // of each id
};

/// Immutable and safe from any thread. Tokens without bytes, which are special or do not exist, are not in it.
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
  /// What is below a node, so that all of it can be allowed at once.
  struct Below {
    std::array<std::uint64_t, 2> ascii{};  // the bytes among the first 128
    std::uint32_t height = 0;              // of the longest way down
    bool others = false;                   // there are other bytes
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
  std::vector<Below> below_;  // of each node
  std::vector<TokenId> tokens_;
  TokenBytes bytes_;
  std::size_t max_depth_ = 0;
};

}  // namespace baton
