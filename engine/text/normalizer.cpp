// SPDX-License-Identifier: Apache-2.0
#include "engine/text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/regex.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

constexpr int kMaxNormalizerDepth = 16;

struct Prepend : Normalizer::Step {
  explicit Prepend(std::string text_before) : prefix(std::move(text_before)) {}
  void apply(std::string& text, bool&, TextWork& work) const override {
    if (text.empty()) return;
    work.check_size(text.size() + prefix.size());
    work.spend((text.size() + prefix.size()) / 16);
    text.insert(0, prefix);
  }
  std::string prefix;
};

struct ReplaceText : Normalizer::Step {
  ReplaceText(PatternPtr old_text, std::string new_text) : pattern(std::move(old_text)), content(std::move(new_text)) {}
  void apply(std::string& text, bool& keeps_start, TextWork& work) const override {
    bool at_start = false;
    text = replaced(text, *pattern, content, work, &at_start);
    if (at_start && content.empty()) keeps_start = false;
  }
  PatternPtr pattern;
  std::string content;
};

struct Strip : Normalizer::Step {
  Strip(bool at_left, bool at_right) : left(at_left), right(at_right) {}
  void apply(std::string& text, bool& keeps_start, TextWork& work) const override {
    work.spend(text.size() / 2);
    std::size_t begin = 0, end = text.size();
    while (left && begin < end && is_space(utf8::at(text, begin).value)) begin += utf8::at(text, begin).bytes;
    while (right && end > begin && is_space(utf8::at(text, utf8::before(text, end)).value)) {
      end = utf8::before(text, end);
    }
    if (begin > 0) keeps_start = false;
    text = text.substr(begin, end - begin);
  }
  bool left, right;
};

struct Lowercase : Normalizer::Step {
  void apply(std::string& text, bool&, TextWork& work) const override {
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
  void apply(std::string& text, bool&, TextWork& work) const override {
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
    steps_.push_back(std::make_shared<Prepend>(string_member(value, "prepend", where)));
  } else if (type == "Replace") {
    steps_.push_back(std::make_shared<ReplaceText>(parse_pattern(member(value, "pattern", where), where.in("pattern")),
                                                   string_member(value, "content", where)));
  } else if (type == "Strip") {
    steps_.push_back(std::make_shared<Strip>(bool_member(value, "strip_left", true, where),
                                             bool_member(value, "strip_right", true, where)));
  } else {
    where.fail(fmt::format("the normalizer {} is not supported", in_quotes(type)));
  }
  check_step_count(steps_.size(), where);
}

std::string Normalizer::apply(std::string_view text, bool& keeps_start, TextWork& work) const {
  std::string out(text);
  for (const auto& step : steps_) step->apply(out, keeps_start, work);
  return out;
}

}  // namespace baton::text
