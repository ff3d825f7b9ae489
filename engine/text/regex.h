// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer.json. They are written for Oniguruma; PCRE2 runs them after a translation of
// what the two read differently (\s, \w, \h, script names).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_json.h"

namespace baton::text {

/// A part of a text [begin, end): a match, or what lies between two.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

/// What PCRE2 must be given so that it matches what Oniguruma matches. Fails for a construct outside of what
/// tokenisers use, by name.
std::string translated_regex(std::string_view oniguruma, const Where& where);

/// Immutable; safe from any thread.
class Regex {
 public:
  Regex(std::string_view oniguruma, const Where& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Appends spans that cover all of `text` (valid UTF-8). Throws ModelError when the match needs too many steps.
  void split(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace baton::text
