// SPDX-License-Identifier: Apache-2.0
#include "engine/text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/text/newer_unicode.h"

namespace baton::text {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

utf8proc_propval_t combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Appends the full decomposition of a character.
void decompose(CodePoints& out, char32_t c, int options) {
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
void order_marks(CodePoints& characters, TextWork& work) {
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
void add_piece(std::string& out, std::string_view piece, NormalForm form, CodePoints& characters, TextWork& work) {
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
  CodePoints characters;
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

}  // namespace baton::text
