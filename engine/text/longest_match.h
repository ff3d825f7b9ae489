// SPDX-License-Identifier: Apache-2.0
// LongestMatch: for every position of a text, the longest text of a set that begins there, in linear time. It is the
// automaton of Aho and Corasick over the reversed texts: read backwards, all texts that begin at a position end there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/seeded_hash.h"
#include "engine/text/text_work.h"

namespace baton::text {

/// Immutable and safe from any thread.
class LongestMatch {
 public:
  LongestMatch() = default;
  /// Empty texts match nothing; of equal texts the first one counts.
  explicit LongestMatch(const std::vector<std::string>& texts);

  bool empty() const { return nodes_.size() <= 1; }

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t index = 0;  // of the text
  };
  /// The longest match at each position that has one, in order; matches may overlap.
  std::vector<Match> find(std::string_view text, TextWork& work) const;

 private:
  struct Node {
    std::uint32_t fallback = 0;  // the longest proper end of this node's text that is a node
    std::int32_t longest = -1;   // the longest text that ends here; -1: none
  };
  std::uint32_t next(std::uint32_t node, unsigned char byte) const;

  std::vector<std::size_t> sizes_;          // of the texts
  std::vector<Node> nodes_;                 // node 0 is the root
  std::array<std::uint32_t, 256> first_{};  // the root's edges
  /// (node, byte) -> node, of the other nodes.
  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> edges_;
};

}  // namespace baton::text
