// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_pattern.h"

#include <utf8proc.h>

#include <nlohmann/json.hpp>

#include "engine/base/string_search.h"
#include "engine/base/utf8.h"
#include "engine/text/newer_unicode.h"

namespace baton::text {
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
