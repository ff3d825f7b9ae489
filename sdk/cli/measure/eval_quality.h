// SPDX-License-Identifier: Apache-2.0
// How near a method's distributions are to those of full prefill, over the same texts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <baton/baton.h>

namespace baton::cli {

/// A run's answers as ids, and what each token was chosen from.
struct Trace {
  std::map<std::string, std::vector<std::int32_t>> tokens;        // by turn
  std::map<std::string, std::vector<std::vector<float>>> logits;  // by turn, then token; the last is of the end

  /// Fills the trace while a run goes on; the trace must outlive it.
  void record(RunOptions& options, const Workflow& workflow);
};

/// Sums over turns; the values are means.
class Quality {
 public:
  /// Compares a run that was forced to `reference`'s answers, over the turns that read other agents.
  void add(const Trace& reference, const Trace& forced, const Workflow& workflow);

  double kl_first_token() const { return first_ == 0 ? 0.0 : kl_first_ / static_cast<double>(first_); }
  double kl_mean() const { return positions_ == 0 ? 0.0 : kl_ / static_cast<double>(positions_); }
  /// Share of tokens that the method would have chosen as well, greedily.
  double agreement() const {
    return positions_ == 0 ? 0.0 : static_cast<double>(agreeing_) / static_cast<double>(positions_);
  }
  std::int64_t positions() const { return positions_; }

 private:
  double kl_ = 0.0;
  double kl_first_ = 0.0;
  std::int64_t positions_ = 0;
  std::int64_t first_ = 0;
  std::int64_t agreeing_ = 0;
};

/// KL(p || q) in nats of the distributions that two rows of logits give.
double kl_divergence(std::span<const float> p, std::span<const float> q);

}  // namespace baton::cli
