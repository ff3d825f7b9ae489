// SPDX-License-Identifier: Apache-2.0
// UTF-8 for the tokeniser and the chat templates: validation, repair and iteration. Searching, comparing and showing
// strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::utf8 {

/// Blanks of a text in ASCII.
inline constexpr std::string_view kBlanks = " \t\r\n";

/// The text without blanks at its ends.
inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

enum class Scan : std::uint8_t { valid, broken, unfinished };

struct CharacterStep {
  Scan kind = Scan::valid;
  std::size_t bytes = 0;  // bytes of the character, or of the ill-formed part that becomes one U+FFFD
};

/// Decodes the character at byte `at`, which must be inside the text. `unfinished`: the text ends within a well-formed
/// character.
CharacterStep scan(std::string_view bytes, std::size_t at);

bool is_valid(std::string_view bytes);

/// Replaces each maximal ill-formed part by one U+FFFD, like Python's bytes.decode("utf-8", "replace").
std::string repaired(std::string_view bytes);

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

/// True for a byte that continues a character, false for a byte that begins one.
constexpr bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns the number of characters in valid UTF-8.
std::size_t count(std::string_view text);

/// Returns the character that begins at a boundary of valid UTF-8.
CodePoint at(std::string_view text, std::size_t position);
/// Returns where the character before `position` (> 0) of valid UTF-8 begins.
std::size_t before(std::string_view text, std::size_t position);
void append(std::string& out, char32_t code_point);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace baton::utf8

namespace baton {

// Searching, comparing and showing strings.

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
