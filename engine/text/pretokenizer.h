// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE (GPT-2): each byte is represented by a printable character, so that a vocabulary is
// text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.h"

namespace baton::text {

/// Appends, as UTF-8, the character that represents the byte.
void append_byte_character(std::string& out, unsigned char byte);
/// Returns the byte that a character represents, if any.
std::optional<unsigned char> byte_of_character(char32_t c);
/// Returns the bytes that a token's text represents; a text with a character outside the alphabet represents itself.
std::string byte_level_bytes(std::string_view token);

// The "pre_tokenizer" of tokenizer.json, which splits the normalised text into words. BPE never merges across words.

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
