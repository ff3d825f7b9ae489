// SPDX-License-Identifier: Apache-2.0
// Stop strings over streamed text: what may still become one is held back, so a stop string never shows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  /// Takes new text and returns what is now certain to stand before any stop string; "" once one was found.
  std::string push(std::string_view text);
  /// The text held back when the output ends without a stop string.
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
