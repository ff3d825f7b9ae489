// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/eval_quality.h"

#include <algorithm>
#include <cmath>

namespace baton::cli {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(value - most);
  return most + std::log(sum);
}

std::size_t likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

bool reads_agents(const TurnInfo& turn) {
  return std::any_of(turn.slots.begin(), turn.slots.end(),
                     [](const SlotInfo& slot) { return slot.source == SlotInfo::Source::agent_output; });
}

}  // namespace

double kl_divergence(std::span<const float> p, std::span<const float> q) {
  const double p_sum = log_sum_exp(p);
  const double q_sum = log_sum_exp(q);
  double kl = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_sum;
    kl += std::exp(log_p) * (log_p - (q[i] - q_sum));
  }
  return std::max(kl, 0.0);
}

void Trace::record(RunOptions& options, const Workflow& workflow) {
  std::map<std::pair<std::string, int>, std::string> ids;
  for (const TurnInfo& turn : workflow.turns()) ids[{turn.agent, turn.round}] = turn.id;
  options.on_event = [this, ids = std::move(ids)](const Event& event) {
    if (const auto* token = std::get_if<Token>(&event))
      tokens[ids.at({token->agent, token->round})].push_back(token->id);
  };
  options.on_logits = [this](const std::string& turn, std::span<const float> row) {
    logits[turn].emplace_back(row.begin(), row.end());
  };
}

void Quality::add(const Trace& reference, const Trace& forced, const Workflow& workflow) {
  for (const TurnInfo& turn : workflow.turns()) {
    if (!reads_agents(turn)) continue;
    const auto ours = forced.logits.find(turn.id);
    const auto theirs = reference.logits.find(turn.id);
    if (ours == forced.logits.end() || theirs == reference.logits.end()) continue;
    const std::size_t count = std::min(ours->second.size(), theirs->second.size());
    for (std::size_t i = 0; i < count; ++i) {
      const double kl = kl_divergence(theirs->second[i], ours->second[i]);
      kl_ += kl;
      if (i == 0) kl_first_ += kl;
      agreeing_ += likeliest(theirs->second[i]) == likeliest(ours->second[i]) ? 1 : 0;
    }
    positions_ += static_cast<std::int64_t>(count);
    first_ += count > 0 ? 1 : 0;
  }
}

}  // namespace baton::cli
