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

double kl_divergence(const LogitsRow& p, std::span<const float> q) {
  const double q_sum = log_sum_exp(q);
  double kl = 0.0;
  for (std::size_t i = 0; i < p.logits.size(); ++i) {
    const double log_p = p.logits[i] - p.log_sum_exp;
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
}

void ReferenceRows::record(RunOptions& options, const Workflow& workflow) {
  for (const TurnInfo& turn : workflow.turns())
    if (reads_agents(turn)) readers_.insert(turn.id);
  options.on_logits = [this](const std::string& turn, std::span<const float> logits) {
    if (readers_.count(turn) == 0) return;
    LogitsRow row;
    if (compared_) row.logits.assign(logits.begin(), logits.end());
    const std::lock_guard lock(mutex_);
    turns_[turn].push_back(std::move(row));
  };
}

void ReferenceRows::complete() {
  if (!compared_) return;
  for (auto& [turn, rows] : turns_) {
    for (LogitsRow& row : rows) {
      row.log_sum_exp = log_sum_exp(row.logits);
      row.likeliest = likeliest(row.logits);
    }
  }
}

void Comparison::record(RunOptions& options) {
  options.on_logits = [this](const std::string& turn, std::span<const float> logits) {
    const auto rows = reference_.turns().find(turn);
    if (rows == reference_.turns().end()) return;
    std::unique_lock lock(mutex_);
    TurnDistance& distance = distances_[turn];  // other turns, on other threads, do not move it
    lock.unlock();
    if (distance.kl.size() == rows->second.size()) return;
    const LogitsRow& row = rows->second[distance.kl.size()];
    distance.kl.push_back(kl_divergence(row, logits));
    distance.agreeing += row.likeliest == likeliest(logits) ? 1 : 0;
  };
}

Distances no_distances(const ReferenceRows& reference) {
  Distances distances;
  for (const auto& [turn, rows] : reference.turns())
    distances[turn] = {std::vector<double>(rows.size(), 0.0), static_cast<std::int64_t>(rows.size())};
  return distances;
}

std::pair<double, std::int64_t> total_of(const Distances& distances) {
  std::pair<double, std::int64_t> total;
  for (const auto& [turn, distance] : distances) {
    for (const double kl : distance.kl) total.first += kl;
    total.second += static_cast<std::int64_t>(distance.kl.size());
  }
  return total;
}

void Quality::add(const Distances& distances, const Workflow& workflow) {
  for (const TurnInfo& turn : workflow.turns()) {
    const auto found = distances.find(turn.id);
    if (found == distances.end()) continue;
    const auto& [kl, agreeing] = found->second;
    double sum = 0.0;
    for (const double one : kl) sum += one;
    kl_ += sum;
    within_ += !kl.empty() && sum <= kTolerance * static_cast<double>(kl.size()) ? 1 : 0;
    if (!kl.empty()) kl_first_ += kl.front();
    agreeing_ += agreeing;
    positions_ += static_cast<std::int64_t>(kl.size());
    first_ += kl.empty() ? 0 : 1;
  }
}

}  // namespace baton::cli
