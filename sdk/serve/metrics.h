// SPDX-License-Identifier: Apache-2.0
// The counters of a server, in Prometheus' text format (version 0.0.4). All members are safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <baton/run_record.h>

namespace baton::serve {

/// Tokens of all turns of a run.
struct TokenCounts {
  std::int64_t prompt = 0;
  std::int64_t completion = 0;  // with thinking
  std::int64_t thinking = 0;
  std::int64_t relayed = 0;  // prompt tokens whose KV was reused, the whole tokens of the fraction of entries
  std::int64_t ahead = 0;    // prompt tokens that were computed ahead of their turn
};

TokenCounts tokens_of(const RunRecord& record);

/// Values of the present moment.
struct ServerLoad {
  int running = 0;
  int waiting = 0;
  int connections = 0;
};

class Metrics {
 public:
  /// `path`: that of an endpoint, or "other"; `model`: that of a served workflow, or empty.
  void count_request(std::string_view path, const std::string& model, int status);
  void count_tokens(const std::string& model, const TokenCounts& tokens);
  /// Of the answer, since the request has arrived.
  void count_first_token(const std::string& model, double seconds);

  std::string text(const ServerLoad& load) const;

 private:
  static constexpr std::array<double, 12> kBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  struct Histogram {
    std::array<std::uint64_t, kBounds.size()> counts{};  // for each bucket alone; larger values are in `count` only
    std::uint64_t count = 0;
    double sum = 0;
  };
  struct Requests {
    std::string path, model;
    int status;
    auto operator<=>(const Requests&) const = default;
  };

  mutable std::mutex mutex_;
  std::map<Requests, std::uint64_t> requests_;
  std::map<std::string, TokenCounts> tokens_;      // by model
  std::map<std::string, Histogram> first_tokens_;  // by model
};

}  // namespace baton::serve
