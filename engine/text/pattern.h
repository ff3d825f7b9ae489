// SPDX-License-Identifier: Apache-2.0
// Patterns of workflow files (`matches`, `output.pattern`, `pattern` in schemas): PCRE2 over UTF-8 text. What matching
// may cost depends on the size of the text alone, so that no pattern and no text can stop a run from ending.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/clock.h"

namespace baton {

/// What all matching and checking of an output of `bytes` may cost, in units of about 5 ns: 0.1 s and 1.3 s per MiB.
Effort effort_for_output(std::size_t bytes);

/// The characters of a property of Unicode as `\p{...}` of ECMAScript names it, as sorted ranges with both ends, in
/// about 10 ms. Throws std::invalid_argument for an unknown one.
std::vector<std::pair<char32_t, char32_t>> characters_of_property(std::string_view name);

/// Immutable and safe from any thread. Matching throws std::runtime_error if it needs more than `effort`.
class Pattern {
 public:
  /// Throws std::invalid_argument with the error and its place in the pattern.
  explicit Pattern(std::string_view pattern);
  /// An expression of ECMAScript, as JSON Schemas have them: \uHHHH and \u{H...} are characters, properties of Unicode
  /// may have their long names, and `$` is only the end of the text.
  static Pattern of_ecmascript(std::string_view pattern);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// True when the pattern occurs anywhere in `text`.
  bool search(std::string_view text, Effort& effort) const;
  bool search(std::string_view text) const;  // with effort_for_output

  /// Returns the first group of the last match, or the whole match when the pattern has no group; nothing without a
  /// match. Bytes that are no UTF-8 count as U+FFFD.
  std::optional<std::string> last_answer(std::string_view text) const;

  struct Compiled;

 private:
  Pattern(std::string_view pattern, unsigned options);

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace baton
