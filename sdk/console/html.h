// SPDX-License-Identifier: Apache-2.0
// Text in HTML and SVG. What agents write is hostile there too: it must stay text. Markup is a type of its own, so that
// no text becomes part of a page before it is escaped.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sdk/console/text.h"

namespace baton::cli {

/// HTML or SVG: literals of this program, escaped text, and what is joined of them.
class Markup {
 public:
  Markup() = default;
  template <std::size_t N>
  Markup(const char (&literal)[N]) : text_(literal, N - 1) {}  // NOLINT: a literal is markup as it stands

  bool empty() const { return text_.empty(); }
  const std::string& str() const { return text_; }

  Markup& operator+=(const Markup& more) {
    text_ += more.text_;
    return *this;
  }
  friend Markup operator+(Markup left, const Markup& right) { return left += right; }

  /// Only for text that is markup by the way it is made; everything else goes through escaped() or html().
  static Markup trusted(std::string text) {
    Markup markup;
    markup.text_ = std::move(text);
    return markup;
  }

 private:
  std::string text_;
};

/// Printable text (text.h) in which no character begins markup: sound between tags and as a quoted attribute.
Markup escaped(std::string_view text, Lines lines = Lines::fold);

/// Returns what html() inserts for an argument: a number as it is, Markup as it is, any other text escaped.
template <typename T>
using HtmlPart = std::conditional_t<std::is_arithmetic_v<T>, T, std::string>;

template <typename T>
HtmlPart<T> html_part(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (std::is_same_v<T, Markup>) {
    return value.str();
  } else {
    return escaped(value).str();
  }
}

/// fmt::format for markup: the pattern is a literal of this program, and texts among the arguments are escaped.
template <typename... Args>
Markup html(fmt::format_string<HtmlPart<Args>...> pattern, const Args&... args) {
  return Markup::trusted(fmt::format(pattern, html_part(args)...));
}

/// At most `bytes` of the text, and no half of a character at its end.
std::string_view cut(std::string_view text, std::size_t bytes);

}  // namespace baton::cli
