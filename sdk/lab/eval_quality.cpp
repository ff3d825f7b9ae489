// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/eval_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <baton/distributions.h>
#include <baton/turns.h>

#include "sdk/console/terminal.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

bool reads_agents(const TurnInfo& turn) {
  return std::any_of(turn.slots.begin(), turn.slots.end(),
                     [](const SlotInfo& slot) { return slot.source == SlotInfo::Source::agent_output; });
}

}  // namespace

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
    const std::lock_guard lock(mutex_);
    LogitsRow row;
    if (compared_) store(row, logits);
    turns_[turn].push_back(std::move(row));
  };
}

void ReferenceRows::complete() {
  if (!compared_) return;
  if (!problem_.empty()) throw Failure(kResources, problem_);
  std::vector<float> memory;
  for (auto& [turn, rows] : turns_) {
    for (LogitsRow& row : rows) {
      const std::span<const float> values = logits(row, memory);
      if (values.empty()) throw Failure(kResources, "eval: logits cannot be read from the temporary file");
      row.log_sum_exp = log_sum_exp(values);
      row.likeliest = likeliest(values);
    }
  }
}

/// Keeps a row in memory, or in the file once there are kMemoryBytes. Called with the lock.
void ReferenceRows::store(LogitsRow& row, std::span<const float> logits) {
  vocabulary_ = logits.size();
  if (memory_bytes_ + logits.size_bytes() <= kMemoryBytes) {
    memory_bytes_ += logits.size_bytes();
    row.logits.assign(logits.begin(), logits.end());
    return;
  }
  if (!problem_.empty()) return;
  if (!file_) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    file_ = open_temporary(folder);
    if (!file_)
      problem_ = fmt::format("eval: a file for logits cannot be made in {}: {}", folder.string(), std::strerror(errno));
  }
  row.offset = file_bytes_;
  if (!file_) return;
  if (!write_at(file_, std::as_bytes(logits), file_bytes_)) {
    problem_ = fmt::format("eval: the temporary file of logits cannot be written: {}", std::strerror(errno));
    return;
  }
  file_bytes_ += static_cast<std::int64_t>(logits.size_bytes());
}

std::span<const float> ReferenceRows::logits(const LogitsRow& row, std::vector<float>& memory) const {
  if (!row.logits.empty()) return row.logits;
  memory.resize(vocabulary_);
  const auto bytes = static_cast<std::int64_t>(vocabulary_ * sizeof(float));
  if (read_at(file_, std::as_writable_bytes(std::span(memory)), row.offset) != bytes) return {};
  return memory;
}

void Comparison::record(RunOptions& options) {
  options.on_logits = [this](const std::string& turn, std::span<const float> logits) {
    const auto rows = reference_.turns().find(turn);
    if (rows == reference_.turns().end()) return;
    std::unique_lock lock(mutex_);
    TurnDistance& distance = distances_[turn];  // other turns, on other threads, do not move it
    std::vector<float>& memory = memory_[turn];
    lock.unlock();
    if (distance.kl.size() == rows->second.size()) return;
    const LogitsRow& row = rows->second[distance.kl.size()];
    const std::span<const float> values = reference_.logits(row, memory);
    distance.kl.push_back(values.empty() ? std::nan("")
                                         : divergence(values, row.log_sum_exp, logits, log_sum_exp(logits)));
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
    const std::vector<double>& kl = found->second.kl;
    double sum = 0.0;
    for (const double one : kl) sum += one;
    kl_ += sum;
    within_ += !kl.empty() && sum <= kTolerance * static_cast<double>(kl.size()) ? 1 : 0;
    if (!kl.empty()) kl_first_ += kl.front();
    agreeing_ += found->second.agreeing;
    positions_ += static_cast<std::int64_t>(kl.size());
    first_ += kl.empty() ? 0 : 1;
  }
}

}  // namespace baton::inline v1::lab
