// SPDX-License-Identifier: Apache-2.0
// The clock of all time measurements.
#pragma once

#include <algorithm>
#include <chrono>

namespace baton {

using Clock = std::chrono::steady_clock;

/// The longest time limit, ten years: a deadline that far ahead does not overflow.
inline constexpr std::chrono::milliseconds kMaxWait = std::chrono::hours(10 * 365 * 24);

/// A host's time limit, of which any value may come: below 0 is 0, and what is longer than kMaxWait is kMaxWait.
inline std::chrono::milliseconds bounded_wait(std::chrono::milliseconds time) {
  return std::clamp(time, time.zero(), kMaxWait);
}

inline double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace baton
