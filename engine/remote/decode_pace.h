// SPDX-License-Identifier: Apache-2.0
// DecodePace: how much slower answers are decoded while prompts are sent ahead, and whether another may be sent. A
// local engine bounds the same slow-down by rows (engine/loop/spare_rows.h); of a server only times can be seen.
#pragma once

#include <cstdint>
#include <map>

#include "engine/base/clock.h"
#include "engine/request.h"

namespace baton {

/// One thread at a time.
class DecodePace {
 public:
  /// `slowdown`: the fraction by which decoding may become slower on average.
  explicit DecodePace(double slowdown) : slowdown_(slowdown) {}

  /// A token of a request came.
  void token(RequestId request, Clock::time_point now);
  void ended(RequestId request) { last_.erase(request); }
  void sent() { busy_ = ++in_flight_ > 0; }
  void answered() { --in_flight_; }

  /// True while nothing is decoded, and while the time that decoding has lost is within the bound.
  bool may_send() const { return last_.empty() || (quiet_ms_ > 0.0 && owed_ms_ <= 0.0); }

 private:
  double slowdown_;
  std::map<RequestId, Clock::time_point> last_;  // tokens of requests that decode
  int in_flight_ = 0;
  bool busy_ = false;      // since the last token a prompt was sent ahead, or is
  double quiet_ms_ = 0.0;  // between two tokens while none is, on average; 0: not measured
  double owed_ms_ = 0.0;   // lost by prompts sent ahead, less what the bound allowed since
};

}  // namespace baton
