// SPDX-License-Identifier: Apache-2.0
// Searching, comparing and showing strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// What a server says in its own words, made fit for a message of ours.

/// The text on one line, without control characters, at most `max_bytes`.
std::string said(std::string_view text, std::size_t max_bytes = 400);

// The edit distance of two words, for "did you mean" hints.

/// Returns the number of insertions, deletions, substitutions and swaps of neighbouring bytes (optimal string
/// alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

// StringSearch: finds a fixed text in linear time, from either end. std::string::find takes the product of both lengths
// for texts such as "aaaa" and "aab", which hostile templates and tokenizers choose.

/// Immutable and safe from any thread.
class StringSearch {
 public:
  explicit StringSearch(std::string wanted);

  std::size_t size() const { return wanted_.size(); }
  /// As text.find(wanted, from), in time linear in what it passes over.
  std::size_t find(std::string_view text, std::size_t from = 0) const;
  /// As text.rfind(wanted), in time linear in what it passes over.
  std::size_t rfind(std::string_view text) const;

 private:
  std::string wanted_;
  // For the wanted text and for its reverse (Knuth, Morris and Pratt): the length of the longest proper border of each
  // beginning. Empty for short texts, for which the plain search is fast enough.
  std::vector<std::uint32_t> borders_;
  std::vector<std::uint32_t> reverse_borders_;
};

}  // namespace baton
