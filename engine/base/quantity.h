// SPDX-License-Identifier: Apache-2.0
// Durations and sizes as people write them: a number and a unit.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

/// What messages say was expected.
inline constexpr std::string_view kDurationForm = "a duration such as 30s";
inline constexpr std::string_view kPositiveDurationForm = "a duration above 0 such as 30s";
inline constexpr std::string_view kSizeForm = "a size such as 4GiB";

/// "30s", "500ms", "1.5m", "1h"; whole milliseconds. Empty for any other text.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Bytes: "4GiB", "512MiB", "16KiB", "100B", "1TiB". Empty for any other text.
std::optional<std::int64_t> parse_size(std::string_view text);

}  // namespace baton
