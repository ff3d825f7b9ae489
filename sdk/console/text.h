// SPDX-License-Identifier: Apache-2.0
// Text for a terminal. What agents write is hostile: before it is shown, control characters and escape sequences become
// visible signs that do nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton::cli {

enum class Lines { keep, fold };  // fold: any run of blanks and line ends becomes one space

/// Valid UTF-8 without control characters (except line ends and tabs if lines are kept) and without marks that
/// change the direction of text. Control characters become their pictures, invalid bytes U+FFFD.
/// `ascii`: everything outside ASCII becomes '?', for terminals of another encoding.
std::string printable(std::string_view text, Lines lines, bool ascii = false);

/// True for a byte that continues a character of UTF-8, false for one that begins it.
constexpr bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Columns that printable text takes; if terminals differ, the larger number.
int display_width(std::string_view text);

/// The first, or the last, `columns` columns of printable text.
std::string head(std::string_view text, int columns);
std::string tail(std::string_view text, int columns);

/// A paragraph whose lines have at most `columns` columns if its words allow it, with its last line end. The first
/// line stands behind `indent` columns that the caller writes, the others behind as many blanks.
std::string wrapped(std::string_view text, int columns, int indent = 0);

/// Blanks up to `columns`, on the right or on the left.
std::string padded(std::string_view text, int columns);
std::string padded_left(std::string_view text, int columns);

/// "1.2 s", "340 ms", "2 min 5 s".
std::string duration(double ms);

/// "12.3 MiB".
std::string size(double bytes);

/// "12,345".
std::string grouped(long long number);

// "Did you mean": the closest word of a list.

/// The candidate that takes the fewest changed, added, removed or swapped letters, or empty when it takes more than a
/// third of the word.
std::string closest(const std::string& word, const std::vector<std::string>& candidates);

/// A word as a shell reads it back, in quotes if it needs them.
std::string shell_word(const std::string& word);

}  // namespace baton::cli
