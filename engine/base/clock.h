// SPDX-License-Identifier: Apache-2.0
// The clock of all time measurements, and Effort: what the work on one text may cost.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <stop_token>
#include <utility>

namespace baton {

using Clock = std::chrono::steady_clock;

/// The longest time limit, ten years: a deadline that far ahead does not overflow.
inline constexpr std::chrono::milliseconds kMaxWait = std::chrono::hours(10 * 365 * 24);

/// A host's time limit, of which any value may come: below 0 is 0, and what is longer than kMaxWait is kMaxWait.
inline std::chrono::milliseconds bounded_wait(std::chrono::milliseconds time) {
  return std::clamp(time, time.zero(), kMaxWait);
}

inline double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Effort: what the work on one text may cost, and whether its caller still wants it. Rendering a chat template and
// encoding a text count all that they do here, so that no input takes longer than its bound and a stop is obeyed soon.

/// One thread at a time. The unit is chosen by the caller; a few nanoseconds each.
class Effort {
 public:
  /// `limit`: units, below the largest number.
  Effort(std::size_t limit, std::stop_token stop) : stop_(std::move(stop)), limit_(limit) { look_later(); }

  /// Counts units of work. False: the limit is exceeded or a stop was requested, and the work must end.
  [[nodiscard]] bool take(std::size_t units) noexcept {
    used_ += std::min(units, std::numeric_limits<std::size_t>::max() - used_);
    return used_ < next_look_ || look();
  }
  /// Allows for more work than the constructor did.
  void allow(std::size_t units) noexcept { limit_ += units; }
  bool stop_requested() const noexcept { return stop_.stop_requested(); }
  std::size_t used() const noexcept { return used_; }

 private:
  static constexpr std::size_t kUnitsBetweenLooks = 16'384;

  bool look() noexcept {
    if (used_ > limit_ || stop_.stop_requested()) return false;
    look_later();
    return true;
  }
  void look_later() noexcept { next_look_ = used_ + std::min(kUnitsBetweenLooks, limit_ - used_ + 1); }

  std::stop_token stop_;
  std::size_t limit_;
  std::size_t used_ = 0;
  std::size_t next_look_ = 0;
};

}  // namespace baton
