// SPDX-License-Identifier: Apache-2.0
#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>
#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "engine/base/utf8.h"
#include "engine/text/normalizer.h"

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

namespace {

// The work that a text may cost ends long matches; PCRE2's own limits begin anew at each position and do not count the
// characters that one item passes over. They remain for what happens between two callouts.
constexpr std::uint32_t kMatchLimit = 50'000'000;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 65'536;
constexpr std::size_t kMaxPatternBytes = 16'384;
constexpr std::size_t kMatchStackBytes = 1u << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <auto release>
struct ReleasePattern {
  void operator()(auto* pointer) const { release(pointer); }
};
using Code = std::unique_ptr<pcre2_code, ReleasePattern<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, ReleasePattern<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, ReleasePattern<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, ReleasePattern<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, ReleasePattern<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::Compiled {
  Code code;
  Where where;
  std::size_t units_per_item = 1;  // a repeat of n characters is one item
  std::size_t units_per_16 = 16;   // bytes that an item passes over; a property of Unicode is looked up for each
};

namespace {

/// What the callouts of one split count. PCRE2 calls them before every item of the pattern.
struct MatchWatch {
  TextWork& work;
  std::size_t units_per_item;
  std::size_t units_per_16;
  std::size_t last = 0;  // where the last item began to match
  bool ended = false;
};

int watch(pcre2_callout_block* block, void* data) {
  auto& state = *static_cast<MatchWatch*>(data);
  const std::size_t at = block->current_position;
  const std::size_t passed = at > state.last ? at - state.last : state.last - at;
  state.last = at;
  state.ended = !state.work.take(state.units_per_item + passed * state.units_per_16 / 16);
  return state.ended ? PCRE2_ERROR_CALLOUT : 0;
}

}  // namespace

Regex::Regex(std::string_view oniguruma, const Where& where) {
  if (oniguruma.size() > kMaxPatternBytes)
    where.fail(
        fmt::format("the regular expression has {} bytes, expected at most {}", oniguruma.size(), kMaxPatternBytes));
  RegexCosts costs;
  const std::string pattern = translated_regex(oniguruma, where, costs);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
                          &error, &offset, context.get()));
  if (!code)
    where.fail(fmt::format("the regular expression {} is broken: {}", in_quotes(oniguruma), message_of(error)));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT, pcre2_match interprets the code
  compiled_ = std::make_unique<Compiled>(
      Compiled{std::move(code), where, 1 + costs.longest_repeat / 8, 16 + costs.widest_class / 8});
}

Regex::~Regex() = default;

void Regex::split(std::string_view text, std::vector<Span>& out, TextWork& work) const {
  const pcre2_code* code = compiled_->code.get();
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  MatchWatch state{work, compiled_->units_per_item, compiled_->units_per_16};
  pcre2_set_callout(context.get(), watch, &state);
  JitStack stack;  // allocated only when the 32 KiB that PCRE2 uses of the thread's own stack are not enough

  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t end_of_last = 0;
  bool any = false;
  for (std::size_t from = 0; from <= text.size();) {
    int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(32 * 1024, kMatchStackBytes, nullptr));
      if (!stack) throw std::bad_alloc();
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (state.ended) work.fail();
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) compiled_->where.fail(fmt::format("matching a text failed: {}", message_of(found)));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = bounds[0], end = bounds[1];
    from = end;
    if (begin == end) {
      from = end < text.size() ? end + utf8::at(text, end).bytes : text.size() + 1;
      if (any && end == end_of_last) continue;  // an empty match right after a match does not count
    }
    if (begin < end_of_last) compiled_->where.fail("a match began before the end of the last one");
    work.check_pieces(out.size() + 2);
    if (begin != end_of_last) out.push_back({end_of_last, begin, false});
    out.push_back({begin, end, true});
    end_of_last = end;
    any = true;
  }
  if (end_of_last != text.size()) out.push_back({end_of_last, text.size(), false});
}

namespace {

class RegexPattern : public TextPattern {
 public:
  RegexPattern(std::string_view pattern, const Where& where) : regex_(pattern, where) {}
  void split(std::string_view text, std::vector<Span>& out, TextWork& work) const override {
    regex_.split(text, out, work);
  }

 private:
  Regex regex_;
};

class StringPattern : public TextPattern {
 public:
  explicit StringPattern(std::string text) : search_(std::move(text)) {}
  void split(std::string_view text, std::vector<Span>& out, TextWork& work) const override {
    std::size_t done = 0;
    for (std::size_t at = 0; (at = search_.find(text, at)) != std::string_view::npos; done = at) {
      work.spend(2);
      work.check_pieces(out.size() + 2);
      if (at != done) out.push_back({done, at, false});
      out.push_back({at, at + search_.size(), true});
      at += search_.size();
    }
    work.spend(text.size() / 4);
    if (done != text.size()) out.push_back({done, text.size(), false});
  }

 private:
  StringSearch search_;
};

class CharacterPattern : public TextPattern {
 public:
  explicit CharacterPattern(CharacterClass member) : member_(member) {}
  void split(std::string_view text, std::vector<Span>& out, TextWork& work) const override {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto [c, bytes] = utf8::at(text, at);
      work.spend(2);
      if (member_(c)) {
        work.check_pieces(out.size() + 2);
        if (at != done) out.push_back({done, at, false});
        out.push_back({at, at + bytes, true});
        done = at + bytes;
      }
      at += bytes;
    }
    if (done != text.size()) out.push_back({done, text.size(), false});
  }

 private:
  CharacterClass member_;
};

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

PatternPtr regex_pattern(std::string_view oniguruma, const Where& where) {
  return std::make_shared<RegexPattern>(oniguruma, where);
}

PatternPtr string_pattern(std::string text, const Where& where) {
  if (text.empty()) where.fail("found an empty string; expected at least one character to search for");
  return std::make_shared<StringPattern>(std::move(text));
}

PatternPtr character_pattern(CharacterClass member) { return std::make_shared<CharacterPattern>(member); }

PatternPtr parse_pattern(const Json& value, const Where& where) {
  if (const auto regex = optional_string(value, "Regex", where)) return regex_pattern(*regex, where);
  return string_pattern(string_member(value, "String", where), where);
}

std::string replaced(std::string_view text, const TextPattern& pattern, std::string_view content, TextWork& work,
                     bool* at_start) {
  std::vector<Span> spans;
  pattern.split(text, spans, work);
  if (at_start != nullptr) *at_start = !spans.empty() && spans.front().match;
  std::string out;
  out.reserve(text.size());
  for (const Span& span : spans) {
    const std::string_view piece = span.match ? content : text.substr(span.begin, span.end - span.begin);
    work.check_size(out.size() + piece.size());
    work.spend(1 + piece.size() / 16);
    out += piece;
  }
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x9 && c <= 0xD);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_number(char32_t c) {
  const auto found = category(c);
  return found == UTF8PROC_CATEGORY_ND || found == UTF8PROC_CATEGORY_NL || found == UTF8PROC_CATEGORY_NO ||
         newer_category(c).starts_with('N');
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const auto found = category(c);
  return (found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO) || newer_category(c).starts_with('P');
}

bool is_word(char32_t c) {
  const auto found = category(c);
  if (found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_NL) return true;  // letters, marks, Nd, Nl
  if (found == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  const std::string_view newer = newer_category(c);
  if (newer.starts_with('L') || newer.starts_with('M') || newer == "Nd") return true;
  // The alphabetic symbols of Unicode: letters in circles and squares.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace baton::text
