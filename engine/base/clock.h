// SPDX-License-Identifier: Apache-2.0
// The clock of all time measurements.
#pragma once

#include <chrono>

namespace baton {

using Clock = std::chrono::steady_clock;

/// The longest time limit, ten years: a deadline that far ahead does not overflow.
inline constexpr std::chrono::milliseconds kMaxWait = std::chrono::hours(10 * 365 * 24);

inline double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace baton
