// SPDX-License-Identifier: Apache-2.0
// CharacterReader: the text of a regular expression or a grammar, read character by character, with errors that name
// the place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/constrain/expression.h"

namespace baton::constrain {

class CharacterReader {
 public:
  /// `what` names the text in messages: "the regular expression". The text must be valid UTF-8 and no longer than
  /// `max_bytes`; throws ConstraintError otherwise.
  CharacterReader(std::string_view text, std::string_view what, std::size_t max_bytes);

  bool done() const { return at_ == text_.size(); }
  /// The next character; 0 at the end.
  char32_t peek() const;
  bool looking_at(std::string_view ascii) const { return text_.substr(at_).starts_with(ascii); }
  char32_t take();
  bool take_if(std::string_view ascii);
  /// Throws unless the text goes on with `ascii`, which is taken.
  void expect(std::string_view ascii);
  /// A number in decimal digits, at most 6 of them; nothing when there is no digit.
  std::optional<std::int32_t> number();
  /// Exactly `digits` hexadecimal digits, at most 8.
  char32_t hexadecimal_number(int digits);
  /// The same, of a character.
  char32_t hexadecimal(int digits);

  std::size_t position() const { return at_; }
  std::string_view between(std::size_t begin, std::size_t end) const { return text_.substr(begin, end - begin); }
  /// Throws ConstraintError with the place.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
};

/// What stands behind an opening bracket: [a-z], [^"]; `escape` reads what follows a backslash.
template <class Escape>
CodePointSet read_class(CharacterReader& reader, const Escape& escape) {
  const bool negated = reader.take_if("^");
  CodePointSet set;
  if (reader.looking_at("]")) reader.fail("expected a character in the brackets");
  while (!reader.take_if("]")) {
    if (reader.done()) reader.fail("expected ']'");
    if (reader.looking_at("[:") || reader.looking_at("[.") || reader.looking_at("[="))
      reader.fail("classes of POSIX such as [:alpha:] are not supported");
    const auto one = [&] {
      return reader.take_if("\\") ? escape(reader) : CodePointSet{{reader.peek(), reader.take()}};
    };
    const CodePointSet low = one();
    const auto single = [](const CodePointSet& of) {
      return of.ranges().size() == 1 && of.ranges()[0].low == of.ranges()[0].high;
    };
    if (!reader.looking_at("-") || reader.looking_at("-]") || !single(low)) {  // [\w-.] has a hyphen
      set.add(low);
      continue;
    }
    reader.take();
    if (reader.done()) reader.fail("expected ']'");
    const CodePointSet high = one();
    if (!single(high)) {
      set.add(low);
      set.add({U'-', U'-'});
      set.add(high);
      continue;
    }
    if (low.ranges()[0].low > high.ranges()[0].low) reader.fail("expected a range of characters such as a-z");
    set.add({low.ranges()[0].low, high.ranges()[0].low});
  }
  return negated ? set.complement() : set;
}

/// The repetition behind a part: * + ? {m} {m,} {m,n}; the part itself when there is none.
ExpressionPtr read_repetition(CharacterReader& reader, ExpressionPtr part);

// Regular expressions to expressions of a grammar.

/// The texts that match as a whole. Look-aheads, look-behinds of one character, `\b`, and `^` and `$` elsewhere than at
/// the ends of its alternatives are parts that only a CharacterMachine is made of.
ExpressionPtr regex_expression(std::string_view regex);

/// The texts in which the expression occurs: with `^` and `$` at their beginning and end.
ExpressionPtr search_expression(std::string_view regex);

}  // namespace baton::constrain
