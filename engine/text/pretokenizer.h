// SPDX-License-Identifier: Apache-2.0
// The "pre_tokenizer" of tokenizer.json: cuts the normalised text into words. BPE never merges across words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/text/text_pattern.h"

namespace baton::text {

/// A text and the words it is cut into, in order. A step may cut words further, drop some and rewrite the text.
struct Words {
  struct Word {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool starts_text = false;  // nothing of what the caller gave lies before it
  };
  std::string text;
  std::vector<Word> words;
};

/// Immutable; safe from any thread.
class PreTokenizer {
 public:
  /// `value` may be null: the text is one word.
  static PreTokenizer parse(const Json* value, const Where& where);

  void apply(Words& words) const;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(Words& words) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace baton::text
