// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/regex_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/machine.h"
#include "engine/text/pattern.h"

namespace baton::constrain {
namespace {

constexpr int kMaxDigits = 6;

}  // namespace

CharacterReader::CharacterReader(std::string_view text, std::string_view what, std::size_t max_bytes)
    : text_(text), what_(what) {
  if (text.size() > max_bytes)
    throw ConstraintError(fmt::format("{} has {} bytes; expected at most {}", what, text.size(), max_bytes));
  if (!utf8::is_valid(text)) throw ConstraintError(fmt::format("{} is not valid UTF-8", what));
}

char32_t CharacterReader::peek() const { return done() ? 0 : utf8::at(text_, at_).value; }

char32_t CharacterReader::take() {
  if (done()) fail("it ends too early");
  const utf8::CodePoint c = utf8::at(text_, at_);
  at_ += c.bytes;
  return c.value;
}

bool CharacterReader::take_if(std::string_view ascii) {
  if (!looking_at(ascii)) return false;
  at_ += ascii.size();
  return true;
}

void CharacterReader::expect(std::string_view ascii) {
  if (!take_if(ascii)) fail(fmt::format("expected '{}'", ascii));
}

std::optional<std::int32_t> CharacterReader::number() {
  std::int32_t value = 0;
  int digits = 0;
  for (; peek() >= U'0' && peek() <= U'9'; ++digits) {
    if (digits == kMaxDigits) fail(fmt::format("the number is too large: expected at most {} digits", kMaxDigits));
    value = value * 10 + static_cast<std::int32_t>(take() - U'0');
  }
  return digits == 0 ? std::nullopt : std::optional(value);
}

char32_t CharacterReader::hexadecimal_number(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char32_t c = peek();
    const char32_t digit = c >= U'0' && c <= U'9'   ? c - U'0'
                           : c >= U'a' && c <= U'f' ? c - U'a' + 10
                           : c >= U'A' && c <= U'F' ? c - U'A' + 10
                                                    : 16;
    if (digit == 16) fail(fmt::format("expected {} hexadecimal digits", digits));
    value = value * 16 + digit;
    take();
  }
  return value;
}

char32_t CharacterReader::hexadecimal(int digits) {
  const char32_t value = hexadecimal_number(digits);
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) fail("this is not a character of Unicode");
  return value;
}

void CharacterReader::fail(const std::string& message) const {
  const std::string_view before = text_.substr(0, at_);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  const std::size_t column = utf8::count(before.substr(begin)) + 1;
  if (text_.find('\n') == text_.npos)
    throw ConstraintError(fmt::format("{} at character {} of {}", message, column, what_));
  throw ConstraintError(fmt::format("{} at line {}, character {} of {}", message, line, column, what_));
}

ExpressionPtr read_repetition(CharacterReader& reader, ExpressionPtr part) {
  if (reader.take_if("*")) return repeat(std::move(part), 0, kUnbounded);
  if (reader.take_if("+")) return repeat(std::move(part), 1, kUnbounded);
  if (reader.take_if("?")) return maybe(std::move(part));
  if (!reader.take_if("{")) return part;
  const std::optional<std::int32_t> low = reader.number();
  if (!low) reader.fail("expected a number of repetitions");
  std::int32_t high = *low;
  if (reader.take_if(",")) high = reader.number().value_or(kUnbounded);
  if (high != kUnbounded && high < *low)
    reader.fail(fmt::format("expected at least {} repetitions as the upper bound, found {}", *low, high));
  reader.expect("}");
  return repeat(std::move(part), *low, high);
}

namespace {

constexpr std::size_t kMaxRegexBytes = 4096;
constexpr int kMaxNesting = 64;

const CodePointSet& digits() {
  static const CodePointSet& set = *new CodePointSet{{U'0', U'9'}};
  return set;
}
const CodePointSet& words() {
  static const CodePointSet& set = *new CodePointSet{{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
  return set;
}
const CodePointSet& spaces() {
  static const CodePointSet& set = *new CodePointSet{{U'\t', U'\r'}, {U' ', U' '}};
  return set;
}
/// As in ECMAScript, `.` is no end of a line.
const CodePointSet& any_of_line() {
  static const CodePointSet& set =
      *new CodePointSet(CodePointSet{{U'\n', U'\n'}, {U'\r', U'\r'}, {0x2028, 0x2029}}.complement());
  return set;
}

const CodePointSet& all_characters() {
  static const CodePointSet& set = *new CodePointSet(CodePointSet().complement());
  return set;
}

/// What follows \\u; two of them, as ECMAScript writes characters beyond U+FFFF, are one.
char32_t unicode_escape(CharacterReader& reader) {
  if (reader.take_if("{")) {
    std::string digits;
    while (!reader.take_if("}")) digits += static_cast<char>(reader.take());
    constexpr std::size_t kMaxHexadecimal = 8;
    if (digits.empty() || digits.size() > kMaxHexadecimal) reader.fail("expected hexadecimal digits in the braces");
    return CharacterReader(digits, "the escape", kMaxHexadecimal).hexadecimal(static_cast<int>(digits.size()));
  }
  const char32_t high = reader.hexadecimal_number(4);
  if (high < 0xD800 || high > 0xDFFF) return high;
  char32_t low = 0;
  if (high < 0xDC00 && reader.take_if("\\u")) low = reader.hexadecimal_number(4);
  if (low < 0xDC00 || low > 0xDFFF) reader.fail("this is not a character of Unicode");
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/// What follows \p or \P.
CodePointSet property(CharacterReader& reader, bool negated) {
  reader.expect("{");
  const std::size_t begin = reader.position();
  while (reader.peek() != U'}') reader.take();
  const std::string name(reader.between(begin, reader.position()));
  reader.expect("}");
  CodePointSet out;
  try {
    for (const auto& [low, high] : characters_of_property(name)) out.add({low, high});
  } catch (const std::invalid_argument& error) {
    reader.fail(error.what());
  }
  return negated ? out.complement() : out;
}

/// What follows a backslash. Classes of \d, \w and \s are those of ASCII.
CodePointSet escape(CharacterReader& reader) {
  const char32_t c = reader.take();
  switch (c) {
    case U'd':
      return digits();
    case U'D':
      return digits().complement();
    case U'w':
      return words();
    case U'W':
      return words().complement();
    case U's':
      return spaces();
    case U'S':
      return spaces().complement();
    case U'n':
      return {{U'\n', U'\n'}};
    case U'r':
      return {{U'\r', U'\r'}};
    case U't':
      return {{U'\t', U'\t'}};
    case U'f':
      return {{U'\f', U'\f'}};
    case U'p':
    case U'P':
      return property(reader, c == U'P');
    case U'v':  // as PCRE2, which checks the answer
      return {{U'\n', U'\r'}, {0x85, 0x85}, {0x2028, 0x2029}};
    default:
      break;
  }
  if (c == U'x' || c == U'u') {
    const char32_t value = c == U'x' ? reader.hexadecimal(2) : unicode_escape(reader);
    return {{value, value}};
  }
  const bool letter = (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9');
  if (letter || c > 0x7F)
    reader.fail(
        "this escape is not supported; expected one of \\d \\w \\s \\D \\W \\S \\n \\r \\t \\f \\v \\xHH \\uHHHH "
        "\\u{H...} \\p{...} \\P{...}, or a sign");
  return {{c, c}};
}

class RegexReader {
 public:
  RegexReader(std::string_view regex, bool search)
      : reader_(regex, "the regular expression", kMaxRegexBytes), search_(search) {}

  ExpressionPtr read() {
    at_begin_ = !search_;
    ExpressionPtr out = alternatives(0);
    if (!reader_.done()) reader_.fail("expected '(' before this ')'");
    return out;
  }

 private:
  ExpressionPtr alternatives(int depth) {
    if (depth > kMaxNesting)
      reader_.fail(fmt::format("it is nested too deeply: expected at most {} levels", kMaxNesting));
    const bool at_begin = at_begin_;
    std::vector<ExpressionPtr> ways{alternative(depth)};
    while (reader_.take_if("|")) {
      at_begin_ = at_begin;
      ways.push_back(alternative(depth));
    }
    return ways.size() == 1 ? ways[0] : choice(std::move(ways));
  }

  /// What is not anchored may stand anywhere in a text that is searched.
  ExpressionPtr alternative(int depth) {
    std::vector<ExpressionPtr> parts;
    const bool from_begin = depth == 0 && reader_.take_if("^");
    at_begin_ = at_begin_ || from_begin;
    if (depth == 0 && search_ && !from_begin) parts.push_back(anything());
    bool to_end = false;
    while (!reader_.done() && !reader_.looking_at("|") && !reader_.looking_at(")")) {
      parts.push_back(repeated(depth));
      to_end = depth == 0 && parts.back() == end_ && (reader_.done() || reader_.looking_at("|"));
      at_begin_ = at_begin_ && is_look(*parts.back());
    }
    if (to_end) parts.pop_back();  // nothing follows
    if (depth == 0 && search_ && !to_end) parts.push_back(anything());
    return sequence(std::move(parts));
  }

  static ExpressionPtr anything() { return repeat(characters(all_characters()), 0, kUnbounded); }

  static bool is_look(const GrammarExpression& expression) {
    return expression.kind == GrammarExpression::Kind::ahead || expression.kind == GrammarExpression::Kind::behind;
  }

  ExpressionPtr repeated(int depth) {
    const ExpressionPtr part = atom(depth);
    ExpressionPtr out = read_repetition(reader_, part);
    if (out == part) return out;
    reader_.take_if("?");  // a lazy repetition matches the same texts
    if (reader_.looking_at("*") || reader_.looking_at("+") || reader_.looking_at("?") || reader_.looking_at("{"))
      reader_.fail("expected one repetition behind a part, found two");
    return out;
  }

  ExpressionPtr atom(int depth) {
    if (reader_.take_if("(")) {
      for (const char* look : {"?=", "?!", "?<=", "?<!"}) {
        if (reader_.take_if(look)) return look_around(std::string_view(look), depth);
      }
      if (reader_.looking_at("?") && !reader_.take_if("?:")) skip_name();
      ExpressionPtr inside = alternatives(depth + 1);
      reader_.expect(")");
      return inside;
    }
    if (reader_.take_if("[^]")) return characters(all_characters());
    if (reader_.take_if("[")) return characters(read_class(reader_, escape));
    if (reader_.take_if(".")) return characters(any_of_line());
    if (reader_.take_if("^")) return look_behind(all_characters(), true);
    if (reader_.take_if("$")) return end_;
    if (reader_.take_if("\\b")) return word_boundary(true);
    if (reader_.take_if("\\B")) return word_boundary(false);
    if (reader_.take_if("\\")) return characters(escape(reader_));
    for (const char* sign : {"*", "+", "?", "{"}) {
      if (reader_.looking_at(sign)) reader_.fail("there is nothing to repeat");
    }
    const char32_t c = reader_.take();
    return characters({{c, c}});
  }

  /// What follows the sign of a look-ahead or look-behind.
  ExpressionPtr look_around(std::string_view sign, int depth) {
    const bool ahead = sign.size() == 2, negated = sign.back() == '!', at_begin = at_begin_;
    ExpressionPtr inside = alternatives(depth + 1);
    reader_.expect(")");
    at_begin_ = at_begin;
    if (ahead) return look_ahead(std::move(inside), negated, at_begin);
    while (inside->kind == GrammarExpression::Kind::sequence && inside->parts.size() == 1) inside = inside->parts[0];
    if (inside->kind != GrammarExpression::Kind::characters)
      reader_.fail("only look-behinds of one character are supported");
    return look_behind(inside->characters, negated);
  }

  static ExpressionPtr word_boundary(bool is_one) {
    const auto ahead = [](bool negated) { return look_ahead(characters(words()), negated); };
    return choice({sequence({look_behind(words(), false), ahead(is_one)}),
                   sequence({look_behind(words(), true), ahead(!is_one)})});
  }

  /// A group with a name is one like any other.
  void skip_name() {
    if (!reader_.take_if("?<")) reader_.fail("of groups that begin with '(?', this one is not supported");
    while (!reader_.take_if(">")) reader_.take();
  }

  CharacterReader reader_;
  bool search_;
  bool at_begin_ = false;  // nothing but looks was read behind the beginning of the text
  const ExpressionPtr end_ = look_ahead(characters(all_characters()), true);
};

bool looks_around(const GrammarExpression& expression) {
  return expression.kind == GrammarExpression::Kind::ahead || expression.kind == GrammarExpression::Kind::behind ||
         std::any_of(expression.parts.begin(), expression.parts.end(),
                     [](const ExpressionPtr& part) { return looks_around(*part); });
}

}  // namespace

ExpressionPtr regex_expression(std::string_view regex) { return RegexReader(regex, false).read(); }
ExpressionPtr search_expression(std::string_view regex) { return RegexReader(regex, true).read(); }

}  // namespace baton::constrain

namespace baton {
namespace {

constexpr std::size_t kMaxTexts = 1024;

}  // namespace

std::shared_ptr<const Grammar> regex_grammar(std::string_view regex) {
  constrain::ExpressionPtr body = constrain::regex_expression(regex);
  if (constrain::looks_around(*body)) body = constrain::CharacterMachine(body).expression();
  const constrain::Rule rule{"the regular expression", std::move(body)};
  return std::make_shared<const Grammar>(std::span(&rule, 1));
}

std::shared_ptr<const Grammar> enum_grammar(std::span<const std::string> texts) {
  if (texts.size() > kMaxTexts)
    throw ConstraintError(fmt::format("it has {} texts; expected at most {}", texts.size(), kMaxTexts));
  std::vector<constrain::ExpressionPtr> ways;
  for (const std::string& text : texts) {
    if (!utf8::is_valid(text)) throw ConstraintError("a text is not valid UTF-8");
    ways.push_back(constrain::text(text));
  }
  const constrain::Rule rule{"the list", constrain::choice(std::move(ways))};
  return std::make_shared<const Grammar>(std::span(&rule, 1));
}

}  // namespace baton
