// SPDX-License-Identifier: Apache-2.0
// Stop strings over streamed text. Text that may be the beginning of a stop string is held back, so no part of a stop
// string is ever emitted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  /// Adds text and returns the text that is now certain to precede any stop string; "" once one was found.
  std::string push(std::string_view text);
  /// Returns the text held back, when the output ends without a stop string.
  std::string finish();

  bool found() const { return found_; }
  /// The length of the text before the stop string (all text so far when none was found).
  std::size_t length() const { return released_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::size_t released_ = 0;
  bool found_ = false;
};

}  // namespace baton
