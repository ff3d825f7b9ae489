// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that select how the backend works.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace baton::cuda {

/// True when the variable has this value.
inline bool is_set(const char* variable, std::string_view value) {
  const char* found = std::getenv(variable);
  return found != nullptr && value == found;
}

/// Returns the variable's number; `otherwise` where it has none.
inline std::int64_t number_in(const char* variable, std::int64_t otherwise) {
  const char* found = std::getenv(variable);
  const std::string_view text = found != nullptr ? found : "";
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

}  // namespace baton::cuda
