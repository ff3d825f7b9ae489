// SPDX-License-Identifier: Apache-2.0
// Texts and tokenizers that were chosen to be slow: one tokenizer for each step there is, the families' own, and those
// that nobody would write in good faith.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace baton::test {

/// A text in which one thing is repeated.
struct RepeatedText {
  std::string unit;
  std::string before = {};
  std::string after = {};

  std::string of(std::size_t bytes) const;
};

struct TextSubject {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  bool may_refuse = false;                  // a text may need more than the tokenizer's limits
  std::vector<RepeatedText> triggers = {};  // the texts that make it slow
  std::size_t times = 1;                    // the ordinary length of a text: some are slow only for a long one
};

/// A regular expression that tries again and again, and a text for which it does.
struct SlowPattern {
  std::string regex;
  RepeatedText trigger;
};
std::vector<SlowPattern> slow_patterns();

/// The families' tokenizers, their variants of tests/golden/tokenizers, and published patterns.
std::vector<TextSubject> honest_tokenizers();
/// Growing replacements, patterns that try again and again, long tokens, blanks around tokens.
std::vector<TextSubject> hostile_tokenizers();

/// Tokenizers that make much more of a text of `a`: characters, words, matches, symbols of one word.
std::vector<TextSubject> growing_tokenizers();
/// A decoder of replacements by the pattern, and 1,000 tokens of 900 bytes, the last ones, that make them slow.
std::shared_ptr<const Tokenizer> hostile_decoder(const SlowPattern& pattern, int replacements);

/// A text of about `bytes`: repeated, nested, mixed or in two halves.
std::string hostile_text(std::mt19937& random, std::size_t bytes);

}  // namespace baton::test
