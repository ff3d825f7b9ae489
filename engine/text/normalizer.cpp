// SPDX-License-Identifier: Apache-2.0
#include "engine/text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/newer_unicode.h"
#include "engine/text/text_pattern.h"

namespace baton::text {
namespace {

constexpr int kDeepestSequence = 16;

struct Prepend : Normalizer::Step {
  explicit Prepend(std::string prefix_) : prefix(std::move(prefix_)) {}
  void apply(std::string& text, bool&) const override {
    if (!text.empty()) text.insert(0, prefix);
  }
  std::string prefix;
};

struct ReplaceText : Normalizer::Step {
  ReplaceText(PatternPtr pattern_, std::string content_) : pattern(std::move(pattern_)), content(std::move(content_)) {}
  void apply(std::string& text, bool& keeps_start) const override {
    std::vector<Span> spans;
    pattern->split(text, spans);
    if (!spans.empty() && spans.front().match && content.empty()) keeps_start = false;
    text = replaced(text, *pattern, content);
  }
  PatternPtr pattern;
  std::string content;
};

struct Strip : Normalizer::Step {
  Strip(bool left_, bool right_) : left(left_), right(right_) {}
  void apply(std::string& text, bool& keeps_start) const override {
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
  void apply(std::string& text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const auto [c, bytes] = utf8::at(text, i);
      if (c == 0x130) {  // the one character whose lower case is two
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
  explicit UnicodeForm(int options_) : options(options_) {}
  void apply(std::string& text, bool&) const override {
    if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; })) return;
    std::string out;
    std::size_t done = 0;
    for (std::size_t i = 0; i < text.size();) {
      const auto [c, bytes] = utf8::at(text, i);
      if (stays_in_normal_forms(c)) {
        map(out, std::string_view(text).substr(done, i - done));
        out += std::string_view(text).substr(i, bytes);
        done = i + bytes;
      }
      i += bytes;
    }
    map(out, std::string_view(text).substr(done));
    text = std::move(out);
  }
  void map(std::string& out, std::string_view text) const {
    if (text.empty()) return;
    utf8proc_uint8_t* mapped = nullptr;
    const auto length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &mapped, static_cast<utf8proc_option_t>(options));
    if (length < 0) throw std::bad_alloc();  // the text is valid UTF-8: nothing else can fail
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
  }
  int options;
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
    if (depth == kDeepestSequence) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "normalizers", where)) {
      add(part, where.in("normalizers").in(i++), depth + 1);
    }
  } else if (type == "NFC") {
    steps_.push_back(std::make_shared<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  } else if (type == "NFD") {
    steps_.push_back(std::make_shared<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  } else if (type == "NFKC") {
    steps_.push_back(std::make_shared<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  } else if (type == "NFKD") {
    steps_.push_back(std::make_shared<UnicodeForm>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
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
}

std::string Normalizer::apply(std::string_view text, bool& keeps_start) const {
  std::string out(text);
  for (const auto& step : steps_) step->apply(out, keeps_start);
  return out;
}

}  // namespace baton::text
