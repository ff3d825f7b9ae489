// SPDX-License-Identifier: Apache-2.0
// The clock of all time measurements.
#pragma once

#include <chrono>

namespace baton {

using Clock = std::chrono::steady_clock;

inline double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace baton
