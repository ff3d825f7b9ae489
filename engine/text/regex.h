// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer.json. They are written for Oniguruma; PCRE2 runs them after a translation of the
// constructs that the two read differently (\s, \w, \h, script names).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_steps.h"

namespace baton::text {

/// A part [begin, end) of a text: a match, or the text between two matches.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

/// The properties that make single items of a pattern expensive.
struct RegexCosts {
  std::size_t longest_repeat = 0;  // the largest number in braces, as in a{3}
  std::size_t widest_class = 0;  // bytes of the longest class, as in [abc]: each character is compared with its members
};

/// Returns a PCRE2 pattern that matches what the Oniguruma pattern matches. Throws ModelError that names the construct,
/// for constructs that tokenisers do not use.
std::string translated_regex(std::string_view oniguruma, const Where& where, RegexCosts& costs);

/// Immutable and safe from any thread.
class Regex {
 public:
  Regex(std::string_view oniguruma, const Where& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Appends spans that cover all of `text` (valid UTF-8). Every attempt of the matcher and every character that it
  /// passes over counts as work.
  void split(std::string_view text, std::vector<Span>& out, TextWork& work) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// TextPattern: a pattern to search for in a text: a regular expression, a fixed string or a class of characters.

/// Immutable and safe from any thread.
class TextPattern {
 public:
  virtual ~TextPattern() = default;
  /// Appends spans that cover all of `text` (valid UTF-8). Throws ModelError when that needs too many steps.
  virtual void split(std::string_view text, std::vector<Span>& out, TextWork& work) const = 0;
};

using PatternPtr = std::shared_ptr<const TextPattern>;
using CharacterClass = bool (*)(char32_t);

PatternPtr regex_pattern(std::string_view oniguruma, const Where& where);
PatternPtr string_pattern(std::string text, const Where& where);
PatternPtr character_pattern(CharacterClass member);
/// Reads {"Regex": "..."} or {"String": "..."}. Throws ModelError.
PatternPtr parse_pattern(const Json& value, const Where& where);

/// Returns the text with every match replaced by `content`, which is inserted literally. `at_start`: whether the text
/// began with a match. Throws ModelError when the result becomes too long.
std::string replaced(std::string_view text, const TextPattern& pattern, std::string_view content, TextWork& work,
                     bool* at_start = nullptr);

bool is_space(char32_t c);        // White_Space
bool is_number(char32_t c);       // N*
bool is_punctuation(char32_t c);  // P* and ASCII punctuation
bool is_word(char32_t c);         // \w of Unicode's regular expressions: letters, marks, digits, connectors, joiners

}  // namespace baton::text
