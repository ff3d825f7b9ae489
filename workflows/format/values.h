// SPDX-License-Identifier: Apache-2.0
// ${env:...} in strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

enum class Secrets : std::uint8_t {
  refuse,  // they would be printed
  keep,    // ${secret:NAME} stays as it is and is resolved where the value is used
};

struct Resolved {
  struct Range {
    std::size_t begin = 0, end = 0;  // bytes
  };
  std::string text;
  std::vector<Range> values;  // of the text: what variables hold, in order; a default is the author's
  std::string error;          // empty: fine
  std::string code;           // of the error
  bool changed = false;
};

/// Resolves ${env:NAME} and ${env:NAME:-default}; "$${" stands for "${". Any other ${...} is plain text.
Resolved resolve_environment(std::string_view text, Secrets secrets);

}  // namespace baton
