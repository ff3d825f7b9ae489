// SPDX-License-Identifier: Apache-2.0
// Values written as text: durations, sizes, and ${env:...} in strings.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// "30s", "500ms", "1.5m", "1h"; whole milliseconds. Empty for any other text.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// "4GiB", "512MiB", "16KiB", "100B", "1TiB". Empty for any other text.
std::optional<std::int64_t> parse_size(std::string_view text);

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
