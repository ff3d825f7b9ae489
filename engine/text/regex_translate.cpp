// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "engine/text/newer_unicode.h"
#include "engine/text/regex.h"

namespace baton::text {
namespace {

// White_Space of Unicode. PCRE2's own \s also contains U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kHex = "0-9a-fA-F";
constexpr std::size_t kMaxRepeat = 255;  // published patterns repeat up to 4 times

/// Returns the members of a class that contains all characters of the categories.
std::string members_of(std::initializer_list<std::string_view> categories) {
  std::string out;
  for (const auto category : categories) out += fmt::format("\\p{{{}}}", category) + newer_ranges(category);
  return out;
}

constexpr std::array<std::string_view, 40> kCategories = {
    "Any", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo",         "Lt",   "Lu", "M",
    "Mc",  "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe",         "Pf",   "Pi", "Po",
    "Ps",  "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Alphabetic", "Emoji"};

class Translation {
 public:
  Translation(std::string_view pattern, const Where& where, RegexCosts& costs)
      : pattern_(pattern),
        where_(where),
        costs_(costs),
        word_(members_of({"Alphabetic", "M", "Nd", "Pc"}) + R"(\xb2\xb3\xb9\xbc-\xbe)"),
        digit_(members_of({"Nd"})) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        bracket();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        counted();
      } else {
        take(1);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    where_.fail(fmt::format("{} at {} of the regular expression {} is not supported", what, at_, in_quotes(pattern_)));
  }
  std::string_view rest() const { return pattern_.substr(at_); }
  void take(std::size_t count) {
    out_ += rest().substr(0, count);
    at_ += count;
  }
  void put(std::string_view text, std::size_t consumed) {
    out_ += text;
    at_ += consumed;
  }
  void set(std::string_view members, bool negated, bool inside) {
    put(inside ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members), 2);
  }

  void escape(bool inside) {
    if (at_ + 1 >= pattern_.size()) unsupported("a final backslash");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's':
        return set(kSpace, false, inside);
      case 'S':
        return inside ? put(kNotSpace, 2) : set(kSpace, true, false);
      case 'w':
        return set(word_, false, inside);
      case 'd':
        return set(digit_, false, inside);
      case 'h':
        return set(kHex, false, inside);
      case 'W':
      case 'D':
      case 'H':
        if (inside) unsupported("a negated class in a class");
        return set(c == 'W' ? word_ : c == 'D' ? digit_ : kHex, true, false);
      case 'b':
      case 'B':
        if (inside) unsupported("\\b in a class");
        return put(c == 'b' ? fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word_)
                            : fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word_),
                   2);
      case 'p':
      case 'P':
        return property(inside);
      case 'u':
        return unicode_escape();
      case 'x':
        return take(2);
      case 't':
      case 'n':
      case 'r':
      case 'f':
      case 'v':
      case 'a':
      case 'e':
        return c == 'v' ? put("\\x{b}", 2) : take(2);
      case 'A':
      case 'z':
      case 'Z':
        if (!inside) return take(2);
        break;
      default:
        break;
    }
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alphanumeric) unsupported(fmt::format("\\{}", c));
    take(2);
  }

  void property(bool inside) {
    const std::string_view text = rest();
    const std::size_t close = text.find('}');
    if (text.size() < 4 || text[2] != '{' || close == std::string_view::npos) unsupported("\\p without {name}");
    std::string_view name = text.substr(3, close - 3);
    bool negated = text[1] == 'P';
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      negated = !negated;
    }
    const bool category = std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    // In PCRE2, a bare script name also matches the script's extensions.
    std::string own = fmt::format("\\{}{{{}{}}}", negated && inside ? 'P' : 'p', category ? "" : "sc:", name);
    if (category && !(negated && inside)) own += newer_ranges(name);
    put(inside ? own : fmt::format("[{}{}]", negated ? "^" : "", own), close + 1);
  }

  void unicode_escape() {
    const std::string_view digits = rest().substr(2, 4);
    const bool hex = std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (digits.size() != 4 || !hex) unsupported("\\u without four digits");
    put(fmt::format("\\x{{{}}}", digits), 6);
  }

  void bracket() {
    const std::size_t begin = at_;
    take(1);
    if (rest().starts_with('^')) take(1);
    if (rest().starts_with(']')) unsupported("an empty class");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[') {
        unsupported("a class in a class");
      } else if (rest().starts_with("&&")) {
        unsupported("an intersection of classes");
      } else {
        take(1);
      }
    }
    if (at_ == pattern_.size()) unsupported("an unclosed class");
    take(1);
    costs_.widest_class = std::max(costs_.widest_class, at_ - begin);
  }

  void group() {
    const std::string_view text = rest();
    if (text.starts_with("(*")) unsupported("(*");
    if (!text.starts_with("(?")) return take(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (text.starts_with(known)) return take(known.size());
    }
    // Elsewhere Oniguruma's (?i) also encloses the alternatives that follow.
    if (at_ == 0 && text.starts_with("(?i)")) return take(4);
    unsupported("this kind of group");
  }

  /// "3", "1,3", ",3" or "3,".
  void note_repeat(std::string_view numbers) {
    while (!numbers.empty()) {
      const std::string_view number = numbers.substr(0, numbers.find(','));
      numbers.remove_prefix(std::min(numbers.size(), number.size() + 1));
      std::size_t repeats = 0;
      const auto read = std::from_chars(number.data(), number.data() + number.size(), repeats);
      if (number.empty()) continue;
      if (read.ec != std::errc() || repeats > kMaxRepeat)
        unsupported(fmt::format("a repeat of more than {} times", kMaxRepeat));
      costs_.longest_repeat = std::max(costs_.longest_repeat, repeats);
    }
  }

  void counted() {
    const std::string_view text = rest();
    const std::size_t close = text.find_first_not_of("0123456789,", 1);
    if (close == std::string_view::npos || text[close] != '}' || close < 2) unsupported("a bare {");
    note_repeat(text.substr(1, close - 1));
    // "+" after a counted repeat is possessive in PCRE2 and a second repeat in Oniguruma.
    if (text.substr(close + 1).starts_with('+')) unsupported("{n,m}+");
    if (text[1] == ',') return put(fmt::format("{{0{}", text.substr(1, close)), close + 1);
    take(close + 1);
  }

  std::string_view pattern_;
  const Where& where_;
  RegexCosts& costs_;
  // Oniguruma's word characters (including marks, and the numbers of Latin-1 that are not digits), and its digits.
  std::string word_, digit_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translated_regex(std::string_view oniguruma, const Where& where, RegexCosts& costs) {
  return Translation(oniguruma, where, costs).run();
}

}  // namespace baton::text
