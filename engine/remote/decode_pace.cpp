// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/decode_pace.h"

#include <algorithm>

namespace baton {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest interval in the average
constexpr double kCredit = 4.0;  // intervals: what was allowed and not used is not kept for longer

}  // namespace

void DecodePace::token(RequestId request, Clock::time_point now) {
  const auto [last, first] = last_.try_emplace(request, now);
  const double interval = milliseconds(now - last->second);
  last->second = now;
  const bool busy = busy_;
  busy_ = in_flight_ > 0;
  if (first) return;
  if (!busy) quiet_ms_ = quiet_ms_ > 0.0 ? quiet_ms_ + kNewest * (interval - quiet_ms_) : std::max(interval, 1e-3);
  if (busy && quiet_ms_ > 0.0) owed_ms_ += interval - quiet_ms_;  // noise adds up to nothing
  owed_ms_ = std::max(owed_ms_ - slowdown_ * quiet_ms_, -kCredit * slowdown_ * quiet_ms_);
}

}  // namespace baton
