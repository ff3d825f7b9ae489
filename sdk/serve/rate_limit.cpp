// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace baton::serve {

int RateLimit::wait_seconds(const std::string& client, Clock::time_point now) {
  if (per_minute_ <= 0) return 0;
  const double capacity = per_minute_, per_second = per_minute_ / 60.0;
  const auto [at, added] = buckets_.try_emplace(client, Bucket{capacity, now});
  Bucket& bucket = at->second;
  const std::chrono::duration<double> since = now - bucket.seen;
  bucket = {std::min(capacity, bucket.tokens + since.count() * per_second), now};
  const double lacking = 1.0 - bucket.tokens;
  if (lacking <= 0) bucket.tokens -= 1.0;
  if (added && buckets_.size() > kMaxClients) {
    buckets_.erase(std::min_element(buckets_.begin(), buckets_.end(), [](const auto& left, const auto& right) {
      return left.second.seen < right.second.seen;
    }));
  }
  return lacking <= 0 ? 0 : static_cast<int>(std::ceil(lacking / per_second));
}

}  // namespace baton::serve
