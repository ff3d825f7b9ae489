// SPDX-License-Identifier: Apache-2.0
// Added tokens: searched for in the text before all other steps, the longest token first.
#pragma once

#include <string_view>
#include <vector>

#include "engine/text/longest_match.h"
#include "engine/text/normalizer.h"
#include "engine/text/vocabulary.h"

namespace baton::text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;   // normalised, and searched for in the normalised text
  bool single_word = false;  // only between word boundaries
  bool lstrip = false;       // includes the spaces before the token
  bool rstrip = false;

  /// Special, or of the form of one: "<tool_call>" and "<|fim_prefix|>" steer a model though they are not special.
  bool is_marker() const;
};

/// Finds a set of added tokens. Immutable and safe from any thread.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& written)
      : tokens_(std::move(tokens)), written_(written) {}

  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    const AddedToken* token = nullptr;  // nullptr: text between tokens
  };
  /// Returns the parts of the text in order. With `skip_markers`, markers count as text. Linear time.
  std::vector<Part> split(std::string_view text, bool skip_markers, TextWork& work) const;

 private:
  std::vector<AddedToken> tokens_;
  LongestMatch written_;
};

/// Reads "added_tokens" and adds the tokens to the vocabulary. Throws ModelError.
std::vector<AddedToken> parse_added_tokens(const Json* list, Vocabulary& vocabulary, const Where& where);

/// The two finders: one for the original text, and one for the normalised text.
struct AddedTokens {
  AddedTokenFinder raw;
  AddedTokenFinder normalized;
};
/// `work`: of normalising them all.
AddedTokens make_finders(const std::vector<AddedToken>& tokens, const Normalizer& normalizer, TextWork& work);

}  // namespace baton::text
