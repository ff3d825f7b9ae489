// SPDX-License-Identifier: Apache-2.0
// Escapes in the string literals of templates: those of Python.
#include "engine/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/text/regex.h"

namespace baton::jinja {

/// Appends the value of what stands between the quotes. The result says what is wrong, if anything.
std::optional<std::string> unescape(std::string_view literal, std::string& out);

namespace {

/// Parses the digits at the start of `text`, from `least` to `most` of them. Returns their number, or 0 when there are
/// too few.
std::size_t digits(std::string_view text, int base, std::size_t least, std::size_t most, unsigned& value) {
  most = std::min(most, text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + most, value, base);
  const auto count = static_cast<std::size_t>(end - text.data());
  return error == std::errc() && count >= least ? count : 0;
}

}  // namespace

std::optional<std::string> unescape(std::string_view literal, std::string& out) {
  static constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  for (std::size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i++];
      continue;
    }
    const char c = literal[i + 1];
    const std::string_view after = literal.substr(i + 2);
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kValues[known];
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      unsigned value = 0;
      i += 1 + digits(literal.substr(i + 1), 8, 1, 3, value);
      utf8::append(out, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      unsigned value = 0;
      if (digits(after, 16, wanted, wanted, value) == 0) return "a broken escape in a string";
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return "an escape that is no character";
      utf8::append(out, value);
      i += 2 + wanted;
    } else if (c == 'N') {
      return "\\N in a string is not supported";
    } else {
      out += '\\';  // Python keeps unknown escapes
      ++i;
    }
  }
  return std::nullopt;
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Replaces all line ends by \n and removes a final one, which is Jinja's first step.
std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& origin) : source_(std::move(source)), origin_(origin) {}

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) text_and_tag();
    out_.push_back({TokenKind::end, "", place()});
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool here(std::string_view text) const { return rest().starts_with(text); }
  Place place() const { return place_; }
  [[noreturn]] void fail_here(std::string_view what) const { fail(origin_, place_, what); }

  void advance(std::size_t bytes) {
    for (const std::size_t end = at_ + bytes; at_ < end; ++at_) {
      if (source_[at_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else {
        ++place_.column;
      }
    }
  }
  void skip_space() {
    while (at_ < source_.size() && is_python_space(utf8::at(source_, at_).value)) advance(utf8::at(source_, at_).bytes);
  }

  /// Returns the text before a tag, trimmed as the tag's sign ("-", "+" or none) demands.
  std::string_view before_tag(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') {
      while (!text.empty()) {
        const std::size_t last = utf8::before(text, text.size());
        if (!is_python_space(utf8::at(text, last).value)) break;
        text = text.substr(0, last);
      }
      return text;
    }
    if (sign == '+' || is_print) return text;
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_start_) return text;
    for (std::size_t i = line; i < text.size(); i += utf8::at(text, i).bytes) {
      if (!is_python_space(utf8::at(text, i).value)) return text;
    }
    return text.substr(0, line);
  }

  void add_data(std::string_view text, Place where) {
    if (!text.empty()) out_.push_back({TokenKind::data, std::string(text), where});
  }

  void text_and_tag() {
    const std::string_view all = rest();
    std::size_t tag = 0;
    while ((tag = all.find('{', tag)) != std::string_view::npos) {
      if (tag + 1 < all.size() && (all[tag + 1] == '{' || all[tag + 1] == '%' || all[tag + 1] == '#')) break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      add_data(all, place());
      advance(all.size());
      return;
    }
    const char kind = all[tag + 1];
    const char sign = tag + 2 < all.size() && (all[tag + 2] == '-' || all[tag + 2] == '+') ? all[tag + 2] : ' ';
    add_data(before_tag(all.substr(0, tag), sign, kind == '{'), place());
    advance(tag);
    const Place begin = place();
    advance(sign == ' ' ? 2 : 3);
    if (kind == '#') {
      comment(begin);
    } else if (kind == '%' && !skip_raw(begin)) {
      out_.push_back({TokenKind::block_begin, "{%", begin});
      inside_tag("%}", TokenKind::block_end, begin);
    } else if (kind == '{') {
      out_.push_back({TokenKind::print_begin, "{{", begin});
      inside_tag("}}", TokenKind::print_end, begin);
    }
  }

  /// Consumes "-%}", "+%}" or "%}" (or another end) with the whitespace that it removes. Returns false when the input
  /// does not continue with the end.
  bool take_end(std::string_view end, bool trims_newline) {
    const std::size_t old = at_;
    if (here("-") && rest().substr(1).starts_with(end)) {
      advance(1 + end.size());
      skip_space();
    } else if (here("+") && trims_newline && rest().substr(1).starts_with(end)) {
      advance(1 + end.size());
    } else if (here(end)) {
      advance(end.size());
      if (trims_newline && here("\n")) advance(1);
    } else {
      return false;
    }
    line_start_ = at_ > old && source_[at_ - 1] == '\n';
    return true;
  }

  void comment(Place begin) {
    while (at_ < source_.size()) {
      if (take_end("#}", true)) return;
      advance(1);
    }
    fail(origin_, begin, "the comment has no end");
  }

  /// Consumes a whole raw block after "{%"; does nothing for other tags.
  bool skip_raw(Place begin) {
    const std::size_t old = at_;
    const Place old_place = place_;
    skip_space();
    if (here("raw")) {
      advance(3);
      skip_space();
      if (take_end("%}", false)) {
        raw_text(begin);
        return true;
      }
    }
    at_ = old;
    place_ = old_place;
    return false;
  }

  void raw_text(Place begin) {
    const std::size_t from = at_;
    const Place from_place = place();
    while (at_ < source_.size()) {
      if (here("{%")) {
        const std::string_view text = std::string_view(source_).substr(from, at_ - from);
        advance(2);
        const char sign = here("-") || here("+") ? source_[at_] : ' ';
        const bool line_start_before = line_start_;
        if (sign != ' ') advance(1);
        skip_space();
        if (here("endraw")) {
          advance(6);
          skip_space();
          const std::string_view kept = before_tag(text, sign, false);
          if (take_end("%}", true)) return add_data(kept, from_place);
        }
        line_start_ = line_start_before;
      } else {
        advance(1);
      }
    }
    fail(origin_, begin, "the raw block has no end");
  }

  void inside_tag(std::string_view end, TokenKind end_kind, Place begin) {
    std::string brackets;  // open brackets, innermost last
    while (true) {
      // A sign before the end belongs to the end: {{ a -}}.
      const Place here_place = place();
      if (brackets.empty() && take_end(end, end_kind == TokenKind::block_end)) {
        out_.push_back({end_kind, std::string(end), here_place});
        return;
      }
      if (at_ >= source_.size()) fail(origin_, begin, "the tag has no end");
      const char c = source_[at_];
      if (is_python_space(utf8::at(source_, at_).value)) {
        skip_space();
      } else if (is_digit(c)) {
        number();
      } else if (is_letter(c)) {
        const std::string_view text = rest();
        const auto last = std::find_if(text.begin(), text.end(), [](char x) { return !is_letter(x) && !is_digit(x); });
        const auto size = static_cast<std::size_t>(last - text.begin());
        if (size > kMaxNameBytes) fail_here("a name is too long");
        add(TokenKind::name, size);
      } else if (c == '"' || c == '\'') {
        string(c);
      } else {
        symbol(brackets);
      }
    }
  }

  void add(TokenKind kind, std::size_t bytes) {
    out_.push_back({kind, std::string(rest().substr(0, bytes)), place()});
    advance(bytes);
  }

  void number() {
    const std::string_view text = rest();
    const auto digits = [&](std::size_t from) {
      while (from < text.size() &&
             (is_digit(text[from]) || (text[from] == '_' && from + 1 < text.size() && is_digit(text[from + 1])))) {
        ++from;
      }
      return from;
    };
    std::size_t end = digits(0);
    bool real = false;
    // "a.0.1" is an element of an element, not a decimal number.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
      real = true;
      end = digits(end + 1);
    }
    if (!after_dot && end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const std::size_t sign = end + 1 < text.size() && (text[end + 1] == '-' || text[end + 1] == '+') ? 1 : 0;
      if (end + 1 + sign < text.size() && is_digit(text[end + 1 + sign])) {
        real = true;
        end = digits(end + 1 + sign);
      }
    }
    const bool leading_zero =
        !real && text[0] == '0' && text.substr(0, end).find_first_not_of("0_") != std::string_view::npos;
    if (leading_zero || (end < text.size() && is_letter(text[end]))) fail_here("this form of number is not supported");
    add(real ? TokenKind::real : TokenKind::integer, end);
    std::erase(out_.back().text, '_');
  }

  void string(char quote) {
    const std::string_view text = rest();
    std::size_t end = 1;
    while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) fail_here("the string has no end");
    std::string value;
    if (const auto error = unescape(text.substr(1, end - 1), value)) fail_here(*error);
    out_.push_back({TokenKind::string, std::move(value), place()});
    advance(end + 1);
  }

  void symbol(std::string& brackets) {
    static constexpr std::array<std::string_view, 27> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(), [this](auto text) { return here(text); });
    if (found == kSymbols.end() || *found == "!") {
      fail_here(fmt::format("unexpected character '{}'", rest().substr(0, utf8::at(source_, at_).bytes)));
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      brackets += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty() || brackets.back() != open) fail_here(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    add(TokenKind::symbol, found->size());
  }

  std::string source_;
  const std::string& origin_;
  std::size_t at_ = 0;
  Place place_;
  bool line_start_ = true;  // the last consumed text ended a line
  std::vector<TemplateToken> out_;
};

}  // namespace

PlacedError::PlacedError(const std::string& origin, Place where, std::string_view what)
    : ModelError(fmt::format("{}:{}:{}: {}", origin, where.line, where.column, what)), place(where), reason(what) {}

void fail(const std::string& origin, Place place, std::string_view what) { throw PlacedError(origin, place, what); }

bool is_python_space(char32_t c) { return text::is_space(c) || (c >= 0x1C && c <= 0x1F); }

std::vector<TemplateToken> tokenize(std::string_view source, const std::string& origin) {
  return Lexer(normalised(source), origin).run();
}

}  // namespace baton::jinja
