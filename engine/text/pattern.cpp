// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <new>
#include <stdexcept>

#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMatchLimit = 1'000'000;  // backtracks from one position, which take tens of milliseconds
constexpr std::uint32_t kHeapLimitKib = 16'384;

constexpr std::size_t kUnitsPerByte = 256;
constexpr std::size_t kFreeUnits = 16'000'000;
constexpr std::size_t kUnitsOfMatch = 16;
constexpr std::size_t kUnitsOfItem = 8;

template <auto release>
struct ReleaseOutputPattern {
  void operator()(auto* pointer) const { release(pointer); }
};
using Code = std::unique_ptr<pcre2_code, ReleaseOutputPattern<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, ReleaseOutputPattern<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, ReleaseOutputPattern<pcre2_match_data_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Pattern::Compiled {
  Code code;
  std::size_t units_per_16 = 8;  // bytes that an item passes over; each is compared with the members of a class
};

namespace {

/// Iterates over the matches of a text. PCRE2 calls `watch` before every item of the pattern.
class Matcher {
 public:
  Matcher(const Pattern::Compiled& pattern, std::string_view text, Effort& effort)
      : code_(pattern.code.get()),
        repaired_(utf8::is_valid(text) ? "" : utf8::repaired(text)),
        text_(repaired_.empty() ? text : repaired_),
        units_per_16_(pattern.units_per_16),
        effort_(effort),
        data_(pcre2_match_data_create_from_pattern(code_, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    pcre2_set_callout(context_.get(), watch, this);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// Finds the next match from `from` on. Returns its number of groups; 0: no match.
  int find(std::size_t from) {
    last_ = from;
    if (!effort_.take(kUnitsOfMatch)) fail();
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                                  PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    if (found == PCRE2_ERROR_CALLOUT) fail();
    if (found == PCRE2_ERROR_NOMATCH) return 0;
    if (found < 0) throw std::runtime_error(fmt::format("matching a pattern failed: {}", message_of(found)));
    return found;
  }

  std::string_view text() const { return text_; }
  std::size_t begin(int group) const { return pcre2_get_ovector_pointer(data_.get())[2 * group]; }
  std::size_t end(int group) const { return pcre2_get_ovector_pointer(data_.get())[2 * group + 1]; }

 private:
  static int watch(pcre2_callout_block* block, void* data) {
    auto& state = *static_cast<Matcher*>(data);
    const std::size_t at = block->current_position;
    const std::size_t passed = at > state.last_ ? at - state.last_ : state.last_ - at;
    state.last_ = at;
    return state.effort_.take(kUnitsOfItem + passed * state.units_per_16_ / 16) ? 0 : PCRE2_ERROR_CALLOUT;
  }

  [[noreturn]] void fail() const {
    throw std::runtime_error(
        fmt::format("matching a pattern failed: it needs more steps than a text of {} bytes may cost", text_.size()));
  }

  const pcre2_code* code_;
  std::string repaired_;  // PCRE2 would check a text that may be broken anew for each match
  std::string_view text_;
  std::size_t units_per_16_;
  Effort& effort_;
  std::size_t last_ = 0;  // where the last item began to match
  MatchData data_;
  MatchContext context_;
};

}  // namespace

Effort effort_for_output(std::size_t bytes) { return {kUnitsPerByte * bytes + kFreeUnits, {}}; }

namespace {

/// The four hexadecimal digits at a place; nothing if they are none.
std::optional<std::uint32_t> hexadecimal_at(std::string_view text, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(digit);
  }
  return value;
}

/// Names of general categories that PCRE2 has only in their short form.
constexpr std::pair<std::string_view, std::string_view> kCategories[] = {
    {"Letter", "L"},
    {"Cased_Letter", "L&"},
    {"LC", "L&"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Private_Use", "Co"},
    {"Surrogate", "Cs"},
    {"Unassigned", "Cn"},
};

/// The name of a property of Unicode as PCRE2 has it.
std::string_view property_name(std::string_view name) {
  for (const std::string_view category : {"General_Category=", "gc="}) {
    if (name.starts_with(category)) name.remove_prefix(category.size());
  }
  for (const auto& [long_name, short_name] : kCategories) {
    if (name == long_name) return short_name;
  }
  return name;
}

/// The end of the braces that open at a place, behind them; npos: they do not open, or not end.
std::size_t braces_end(std::string_view text, std::size_t at) {
  if (at >= text.size() || text[at] != '{') return std::string_view::npos;
  const std::size_t end = text.find('}', at);
  return end == std::string_view::npos ? end : end + 1;
}

/// True for an escape that stands for several characters, such as \d, and for nothing else.
bool is_class_escape(std::string_view text) {
  return text.size() > 1 && text[0] == '\\' && std::string_view("dDsSwWpP").find(text[1]) != std::string_view::npos;
}

/// With \x{HHHH} for \uHHHH and \u{HHHH}, and with PCRE2's names of properties. Two halves of a character become
/// one.
std::string with_own_escapes(std::string_view pattern) {
  std::string out;
  bool in_class = false, behind_class = false;  // in brackets; behind an escape such as \d in them
  for (std::size_t at = 0; at < pattern.size();) {
    const bool hyphen = in_class && pattern[at] == '-' && (behind_class || is_class_escape(pattern.substr(at + 1)));
    behind_class = in_class && is_class_escape(pattern.substr(at));
    if (pattern[at] != '\\' || at + 1 == pattern.size()) {
      in_class = pattern[at] == '[' || (in_class && pattern[at] != ']');
      out += hyphen ? "\\-" : pattern.substr(at, 1);  // such as [\w-.], which PCRE2 takes for a range
      ++at;
      continue;
    }
    const char kind = pattern[at + 1];
    if (const std::size_t end = braces_end(pattern, at + 2);
        end != std::string_view::npos && (kind == 'u' || kind == 'p' || kind == 'P')) {
      const std::string_view inside = pattern.substr(at + 3, end - at - 4);
      out += kind == 'u' ? fmt::format("\\x{{{}}}", inside) : fmt::format("\\{}{{{}}}", kind, property_name(inside));
      at = end;
      continue;
    }
    std::optional<std::uint32_t> value = pattern[at + 1] == 'u' ? hexadecimal_at(pattern, at + 2) : std::nullopt;
    if (!value) {
      out += pattern.substr(at, 2);
      at += 2;
      continue;
    }
    at += 6;
    if (*value >= 0xD800 && *value < 0xDC00 && pattern.substr(at).starts_with("\\u")) {
      const std::optional<std::uint32_t> low = hexadecimal_at(pattern, at + 2);
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
        at += 6;
      }
    }
    out += fmt::format("\\x{{{:X}}}", *value);
  }
  return out;
}

}  // namespace

std::vector<std::pair<char32_t, char32_t>> characters_of_property(std::string_view name) {
  constexpr char32_t kBlock = 0x1000, kEnd = 0x110000;
  const auto compiled = [&](char letter) {
    const std::string pattern = fmt::format("\\{}{{{}}}*+", letter, property_name(name));
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_ANCHORED,
                            &error, &offset, nullptr));
    if (!code || name.find_first_of("{}\\*") != std::string_view::npos)
      throw std::invalid_argument(fmt::format("unknown property of Unicode '{}'", name));
    return code;
  };
  const Code inside = compiled('p'), outside = compiled('P');
  const MatchData data(pcre2_match_data_create_from_pattern(inside.get(), nullptr));
  if (!data) throw std::bad_alloc();
  std::vector<std::pair<char32_t, char32_t>> out;
  for (char32_t block = 0; block < kEnd; block += kBlock) {
    std::string text;
    for (char32_t c = block; c < block + kBlock; ++c) {
      if (c < 0xD800 || c > 0xDFFF) utf8::append(text, c);
    }
    bool within = false;
    char32_t begin = block;
    for (std::size_t at = 0; at < text.size(); within = !within) {
      const int found = pcre2_match((within ? inside : outside).get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
      const std::size_t end = found > 0 ? pcre2_get_ovector_pointer(data.get())[1] : at;
      if (end == at && begin > block) throw std::invalid_argument(message_of(found));
      const auto next = begin + static_cast<char32_t>(utf8::count(std::string_view(text).substr(at, end - at)));
      if (within && next > begin) {
        if (!out.empty() && out.back().second + 1 == begin)
          out.back().second = next - 1;
        else
          out.emplace_back(begin, next - 1);
      }
      at = end;
      begin = next;
    }
  }
  return out;
}

Pattern::Pattern(std::string_view pattern) : Pattern(pattern, 0u) {}

Pattern Pattern::of_ecmascript(std::string_view pattern) {
  return {with_own_escapes(pattern), PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF | PCRE2_ALLOW_EMPTY_CLASS};
}

Pattern::Pattern(std::string_view pattern, unsigned options) {
  if (pattern.size() > kMaxPatternBytes) {
    throw std::invalid_argument(
        fmt::format("the pattern has {} bytes; expected at most {}", pattern.size(), kMaxPatternBytes));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT | options, &error, &offset,
                          nullptr));
  if (!code)
    throw std::invalid_argument(fmt::format("{} at character {} of the pattern", message_of(error), offset + 1));
  compiled_ = std::make_unique<Compiled>(Compiled{std::move(code), 8 + pattern.size() / 8});
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::search(std::string_view text, Effort& effort) const {
  return Matcher(*compiled_, text, effort).find(0) > 0;
}

bool Pattern::search(std::string_view text) const {
  Effort effort = effort_for_output(text.size());
  return search(text, effort);
}

std::optional<std::string> Pattern::last_answer(std::string_view text) const {
  std::uint32_t groups = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
  const int wanted = groups > 0 ? 1 : 0;

  Effort effort = effort_for_output(text.size());
  Matcher matcher(*compiled_, text, effort);
  std::optional<std::string> answer;
  std::size_t from = 0;
  while (from <= matcher.text().size()) {
    const int found = matcher.find(from);
    if (found == 0) break;
    const bool took_part = wanted < found && matcher.begin(wanted) != PCRE2_UNSET;
    if (took_part) {
      answer = std::string(matcher.text().substr(matcher.begin(wanted), matcher.end(wanted) - matcher.begin(wanted)));
    } else {
      answer = std::string();
    }
    const std::size_t end = matcher.end(0);
    // \K can end a match before its begin, and an empty match must still advance.
    const bool at_end = from == matcher.text().size();
    from = end > from ? end : from + (at_end ? 1 : utf8::at(matcher.text(), from).bytes);
  }
  return answer;
}

}  // namespace baton
