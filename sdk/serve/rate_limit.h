// SPDX-License-Identifier: Apache-2.0
// How many requests a client may make.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace baton::serve {

/// A bucket of tokens for each client, which holds those of a minute and fills steadily. For one thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMaxClients = 10'000;  // buckets; that of the client unseen for longest is forgotten

  /// `per_minute` 0: no limit.
  explicit RateLimit(int per_minute) : per_minute_(per_minute) {}

  /// Counts a request. Returns 0, or after how many seconds the client may try again.
  int wait_seconds(const std::string& client, Clock::time_point now);

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point seen;
  };

  int per_minute_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace baton::serve
