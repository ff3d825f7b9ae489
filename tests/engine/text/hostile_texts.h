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

struct TextSubject {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  bool may_refuse = false;  // a text may need more than the tokenizer's limits
};

/// The families' tokenizers, their variants of tests/golden/tokenizers, and published patterns.
std::vector<TextSubject> honest_tokenizers();
/// Growing replacements, patterns that try again and again, long tokens, blanks around tokens.
std::vector<TextSubject> hostile_tokenizers();

/// Tokenizers that make much more of a text of `a`: characters, words, matches, symbols of one word.
std::vector<TextSubject> growing_tokenizers();
/// A decoder of replacements by a regular expression that tries each position again, and 1,000 long tokens.
std::shared_ptr<const Tokenizer> hostile_decoder(int replacements);

/// A text of about `bytes`: repeated, nested, mixed or in two halves.
std::string hostile_text(std::mt19937& random, std::size_t bytes);

}  // namespace baton::test
