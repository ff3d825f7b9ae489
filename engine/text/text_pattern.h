// SPDX-License-Identifier: Apache-2.0
// TextPattern: a pattern to search for in a text: a regular expression, a fixed string or a class of characters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/regex.h"

namespace baton::text {

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
