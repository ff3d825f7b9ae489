// SPDX-License-Identifier: Apache-2.0
#include "engine/text/normalizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/text/regex.h"

namespace baton::text {
namespace {

struct Range {
  char32_t first, last;
  std::string_view category;
};

constexpr std::array<Range, 126> kNewer = {{
    {0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},     {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},   {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"},   {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},   {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
    {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
    {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"}, {0x11BF0, 0x11BF9, "Nd"},
    {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"},
    {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"}, {0x11F3E, 0x11F3F, "Mc"},
    {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"}, {0x11F43, 0x11F4F, "Po"},
    {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"}, {0x13439, 0x1343F, "Cf"},
    {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"},
    {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"}, {0x1612D, 0x1612F, "Mn"},
    {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"},
    {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"},
    {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"}, {0x1CD00, 0x1CEB3, "So"},
    {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"},
    {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"},
    {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"}, {0x1E5F1, 0x1E5FA, "Nd"},
    {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"},
    {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"},
    {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"}, {0x1FABB, 0x1FABF, "So"},
    {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"},
    {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"},
    {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
}};

struct NewerRange {
  char32_t first, last;
};

// Marks and compatibility characters added in Unicode 10 to 14.
constexpr std::array<NewerRange, 42> kUnknownToNormaliser = {{
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
}};

}  // namespace

bool stays_in_normal_forms(char32_t c) {
  const auto it = std::lower_bound(kUnknownToNormaliser.begin(), kUnknownToNormaliser.end(), c,
                                   [](const NewerRange& x, char32_t y) { return x.last < y; });
  return (it != kUnknownToNormaliser.end() && c >= it->first) || !newer_category(c).empty();
}

std::string_view newer_category(char32_t c) {
  const auto it =
      std::lower_bound(kNewer.begin(), kNewer.end(), c, [](const Range& x, char32_t y) { return x.last < y; });
  return it == kNewer.end() || c < it->first ? std::string_view() : it->category;
}

std::string newer_ranges(std::string_view category) {
  std::string out;
  if (category == "Alphabetic") return newer_ranges("L");
  for (const Range& range : kNewer) {
    if (!range.category.starts_with(category)) continue;
    out += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(range.first));
    if (range.last != range.first) out += fmt::format("-\\x{{{:x}}}", static_cast<unsigned>(range.last));
  }
  return out;
}

namespace {

using DecomposedText = std::vector<utf8proc_int32_t>;

utf8proc_propval_t combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Appends the full decomposition of a character.
void decompose(DecomposedText& out, char32_t c, int options) {
  std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18 characters
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                             static_cast<utf8proc_ssize_t>(parts.size()),
                                             static_cast<utf8proc_option_t>(options), &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back(static_cast<utf8proc_int32_t>(c));
  } else {
    out.insert(out.end(), parts.begin(), parts.begin() + count);
  }
}

/// Orders the marks of each character by their classes; marks of one class keep their order.
void order_marks(DecomposedText& characters, TextWork& work) {
  const auto begin = characters.begin(), end = characters.end();
  for (auto at = begin; at != end;) {
    const auto marks = std::find_if(at, end, [](auto c) { return combining_class(c) != 0; });
    at = std::find_if(marks, end, [](auto c) { return combining_class(c) == 0; });
    work.spend(static_cast<std::size_t>(at - marks));
    if (at - marks < 2) continue;
    std::stable_sort(marks, at, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
  }
}

/// Normalises a piece in which every character is known.
void add_piece(std::string& out, std::string_view piece, NormalForm form, DecomposedText& characters, TextWork& work) {
  const int options = UTF8PROC_STABLE | (form.composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (form.compatibility ? UTF8PROC_COMPAT : 0);
  characters.clear();
  for (std::size_t i = 0; i < piece.size();) {
    const auto [c, bytes] = utf8::at(piece, i);
    work.spend(2);
    decompose(characters, c, options);
    work.check_size(out.size() + characters.size());
    i += bytes;
  }
  order_marks(characters, work);
  if (form.composed) {
    const auto count = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                                static_cast<utf8proc_option_t>(options));
    characters.resize(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  for (const utf8proc_int32_t c : characters) utf8::append(out, static_cast<char32_t>(c));
  work.check_size(out.size());
}

}  // namespace

std::string in_normal_form(std::string_view text, NormalForm form, TextWork& work) {
  std::string out;
  out.reserve(text.size());
  DecomposedText characters;
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    work.spend(1);
    if (stays_in_normal_forms(c)) {
      add_piece(out, text.substr(done, i - done), form, characters, work);
      out += text.substr(i, bytes);
      done = i + bytes;
    }
    i += bytes;
  }
  add_piece(out, text.substr(done), form, characters, work);
  return out;
}

namespace {

constexpr int kMaxNormalizerDepth = 16;

struct Prepend : Normalizer::Step {
  explicit Prepend(std::string text_before) : prefix(std::move(text_before)) {}
  void apply(std::string& text, Normalizer::Start& start, TextWork& work) const override {
    if (text.empty() || start.continues) return;
    work.check_size(text.size() + prefix.size());
    work.spend((text.size() + prefix.size()) / 16);
    text.insert(0, prefix);
  }
  std::string prefix;
};

struct ReplaceText : Normalizer::Step {
  ReplaceText(PatternPtr old_text, std::string new_text) : pattern(std::move(old_text)), content(std::move(new_text)) {}
  void apply(std::string& text, Normalizer::Start& start, TextWork& work) const override {
    bool at_start = false;
    text = replaced(text, *pattern, content, work, &at_start);
    if (at_start && content.empty()) start.kept = false;
  }
  PatternPtr pattern;
  std::string content;
};

struct Strip : Normalizer::Step {
  Strip(bool at_left, bool at_right) : left(at_left), right(at_right) {}
  void apply(std::string& text, Normalizer::Start& start, TextWork& work) const override {
    work.spend(text.size() / 2);
    std::size_t begin = 0, end = text.size();
    while (left && !start.continues && begin < end && is_space(utf8::at(text, begin).value))
      begin += utf8::at(text, begin).bytes;
    while (right && end > begin && is_space(utf8::at(text, utf8::before(text, end)).value)) {
      end = utf8::before(text, end);
    }
    if (begin > 0) start.kept = false;
    text = text.substr(begin, end - begin);
  }
  bool left, right;
};

struct Lowercase : Normalizer::Step {
  void apply(std::string& text, Normalizer::Start&, TextWork& work) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const auto [c, bytes] = utf8::at(text, i);
      work.spend(1);
      if (c == 0x130) {  // the only character whose lower case has two characters
        out += "i\xCC\x87";
      } else {
        utf8::append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
      }
      i += bytes;
    }
    text = std::move(out);
  }
};

struct UnicodeForm : Normalizer::Step {
  explicit UnicodeForm(NormalForm wanted) : form(wanted) {}
  void apply(std::string& text, Normalizer::Start&, TextWork& work) const override {
    work.spend(text.size() / 16);
    if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; })) return;
    text = in_normal_form(text, form, work);
  }
  NormalForm form;
};

}  // namespace

Normalizer Normalizer::parse(const Json* value, const Where& where) {
  Normalizer out;
  if (value != nullptr) out.add(*value, where, 0);
  return out;
}

void Normalizer::add(const Json& value, const Where& where, int depth) {
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxNormalizerDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "normalizers", where)) {
      add(part, where.in("normalizers").in(i++), depth + 1);
    }
  } else if (type == "NFC") {
    steps_.push_back(std::make_shared<UnicodeForm>(NormalForm{.composed = true, .compatibility = false}));
  } else if (type == "NFD") {
    steps_.push_back(std::make_shared<UnicodeForm>(NormalForm{.composed = false, .compatibility = false}));
  } else if (type == "NFKC") {
    steps_.push_back(std::make_shared<UnicodeForm>(NormalForm{.composed = true, .compatibility = true}));
  } else if (type == "NFKD") {
    steps_.push_back(std::make_shared<UnicodeForm>(NormalForm{.composed = false, .compatibility = true}));
  } else if (type == "Lowercase") {
    steps_.push_back(std::make_shared<Lowercase>());
  } else if (type == "Prepend") {
    changes_starts_ = true;
    steps_.push_back(std::make_shared<Prepend>(string_member(value, "prepend", where)));
  } else if (type == "Replace") {
    steps_.push_back(std::make_shared<ReplaceText>(parse_pattern(member(value, "pattern", where), where.in("pattern")),
                                                   string_member(value, "content", where)));
  } else if (type == "Strip") {
    const bool left = bool_member(value, "strip_left", true, where);
    changes_starts_ = changes_starts_ || left;
    steps_.push_back(std::make_shared<Strip>(left, bool_member(value, "strip_right", true, where)));
  } else {
    where.fail(fmt::format("the normalizer {} is not supported", in_quotes(type)));
  }
  check_step_count(steps_.size(), where);
}

std::string Normalizer::apply(std::string_view text, Start& start, TextWork& work) const {
  std::string out(text);
  for (const auto& step : steps_) step->apply(out, start, work);
  return out;
}

}  // namespace baton::text
