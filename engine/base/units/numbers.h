// SPDX-License-Identifier: Apache-2.0
// Numbers: durations and sizes as people write them, and arithmetic that says when its result does not fit.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace baton {

// Durations and sizes as people write them: a number and a unit.

/// What messages say was expected.
inline constexpr std::string_view kDurationForm = "a duration such as 30s";
inline constexpr std::string_view kPositiveDurationForm = "a duration above 0 such as 30s";
inline constexpr std::string_view kSizeForm = "a size such as 4GiB";

/// Returns whole milliseconds of "30s", "500ms", "1.5m" or "1h", and nothing for any other text. `bare_unit`: the unit
/// of a number without one; if it is empty, a number must have its unit.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text, std::string_view bare_unit = {});

/// Bytes: "4GiB", "512MiB", "16KiB", "100B", "1TiB". Empty for any other text.
std::optional<std::int64_t> parse_size(std::string_view text);

// Arithmetic that says when its result does not fit, in any compiler.

// out = a + b, a - b or a * b modulo 2^64; true when that is not the result.

inline bool add_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  return ((a ^ out) & (b ^ out)) < 0;
}

inline bool subtract_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  return ((a ^ b) & (a ^ out)) < 0;
}

inline bool multiply_overflows(std::int64_t a, std::int64_t b, std::int64_t& out) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  if (a == -1 || b == -1) return (a == -1 ? b : a) == kMin;
  return b != 0 && out / b != a;
}

}  // namespace baton
