// SPDX-License-Identifier: Apache-2.0
// The "pre_tokenizer" of tokenizer.json, which splits the normalised text into words. BPE never merges across words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/text/text_pattern.h"

namespace baton::text {

/// A text and its words, in order. A step may split words further, drop words and rewrite the text.
struct Words {
  struct Word {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool starts_text = false;  // the word begins the caller's text
  };
  std::string text;
  std::vector<Word> words;
};

/// Immutable and safe from any thread.
class PreTokenizer {
 public:
  /// A null `value` makes the whole text one word. Throws ModelError.
  static PreTokenizer parse(const Json* value, const Where& where);

  /// Throws ModelError for a text that grows too long or needs too many steps.
  void apply(Words& words, TextWork& work) const;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(Words& words, TextWork& work) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace baton::text
