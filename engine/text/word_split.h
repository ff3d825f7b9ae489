// SPDX-License-Identifier: Apache-2.0
// Cutting words at the matches of a pattern, and what becomes of the matches.
#pragma once

#include "engine/text/pretokenizer.h"

namespace baton::text {

enum class Matches : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Fails for an unknown behaviour.
Matches parse_behaviour(const std::string& name, const Where& where);

class WordSplit : public PreTokenizer::Step {
 public:
  /// `inverted`: what does not match counts as the match.
  WordSplit(PatternPtr pattern, Matches behaviour, bool inverted)
      : pattern_(std::move(pattern)), behaviour_(behaviour), inverted_(inverted) {}
  void apply(Words& words, TextWork& work) const override;

 private:
  PatternPtr pattern_;
  Matches behaviour_;
  bool inverted_;
};

}  // namespace baton::text
