// SPDX-License-Identifier: Apache-2.0
// Stop strings over streamed text. Text that may be the beginning of a stop string is held back, so no part of a stop
// string is ever emitted. Each byte costs a few steps for each stop string, whatever their lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class StopStrings {
 public:
  /// None of them may be empty.
  explicit StopStrings(const std::vector<std::string>& stops);

  /// Adds text and returns the text that is now certain to precede any stop string; "" once one was found.
  std::string push(std::string_view text);
  /// Returns the text held back, when the output ends without a stop string.
  std::string finish();

  bool found() const { return found_; }
  /// The length of the text before the stop string (all text so far when none was found).
  std::size_t length() const { return released_; }

 private:
  /// The automaton of Knuth, Morris and Pratt (SIAM Journal on Computing 6, 1977).
  struct Stop {
    bool take(char byte);

    std::string text;
    std::vector<std::uint32_t> border;  // for each beginning: its longest proper suffix that is a beginning, too
    std::size_t matched = 0;            // bytes of the text that the output ends with
  };

  std::vector<Stop> stops_;
  std::string held_;
  std::size_t released_ = 0;
  bool found_ = false;
};

}  // namespace baton
