// SPDX-License-Identifier: Apache-2.0
// Patterns of workflow files (`matches`, `output.pattern`): PCRE2 over UTF-8 text, with limits so that no pattern can
// stop a run from ending.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

/// Immutable and safe from any thread. Matching throws std::runtime_error when the pattern needs too many steps.
class Pattern {
 public:
  /// Throws std::invalid_argument with the error and its place in the pattern.
  explicit Pattern(std::string_view pattern);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// True when the pattern occurs anywhere in `text`.
  bool search(std::string_view text) const;

  /// Returns the first group of the last match, or the whole match when the pattern has no group; nothing without a
  /// match.
  std::optional<std::string> last_answer(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace baton
