// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that select how the backend works.
#pragma once

#include <cstdlib>
#include <string_view>

namespace baton::cuda {

/// True when the variable has this value.
inline bool is_set(const char* variable, std::string_view value) {
  const char* found = std::getenv(variable);
  return found != nullptr && value == found;
}

}  // namespace baton::cuda
