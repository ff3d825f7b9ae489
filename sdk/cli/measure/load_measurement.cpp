// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/load_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

Run start(const Engine& engine, const Workflow& workflow, const Question& question, RunOptions options) {
  options.inputs = question.inputs;
  options.stop = interrupted();
  try {
    return engine.start(workflow, options);
  } catch (const InputError& wrong) {
    throw Failure(kInvalidFile, fmt::format("question '{}': {}", question.id, wrong.what()));
  }
}

/// Returns when the time has come, or at an interrupt.
void sleep_until(Clock::time_point time) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, interrupted(), time, [] { return false; });
}

struct Started {
  Run run;
  double late_ms;  // after its arrival
};

std::size_t over(const std::deque<Started>& started) {
  return static_cast<std::size_t>(std::count_if(started.begin(), started.end(), [](const Started& one) {
    return one.run.wait_for(std::chrono::milliseconds(0));
  }));
}

}  // namespace

Times::Times(std::vector<double> values) : values_(std::move(values)) { std::sort(values_.begin(), values_.end()); }

double Times::mean() const {
  return values_.empty() ? 0.0
                         : std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double Times::quantile(double fraction) const {
  if (values_.empty()) return 0.0;
  const double at = fraction * static_cast<double>(values_.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values_.size() - 1);
  return values_[below] + (at - static_cast<double>(below)) * (values_[above] - values_[below]);
}

nlohmann::ordered_json Times::to_json() const {
  return {{"mean", mean()}, {"median", quantile(0.5)}, {"p95", quantile(0.95)}};
}

std::vector<double> arrival_times(std::size_t count, double per_minute, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> times;
  double at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    times.push_back(at);
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;  // below 1
    at -= std::log1p(-uniform) * 60'000.0 / per_minute;
  }
  return times;
}

LoadPoint measure_load(const Engine& engine, const Workflow& workflow, const LoadRuns& runs, double per_minute,
                       const std::function<void(std::size_t over)>& progress) {
  std::deque<Started> started;
  const std::vector<double> times = arrival_times(runs.questions.size(), per_minute, runs.seed);
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto arrival =
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(times[i]));
    sleep_until(arrival);
    if (interrupted().stop_requested()) break;
    RunOptions options;
    if (!runs.answers.empty()) options.forced_outputs = runs.answers[i].tokens;
    const double late = milliseconds_between(arrival, Clock::now());
    started.push_back({start(engine, workflow, runs.questions[i], std::move(options)), late});
    progress(over(started));
  }
  LoadPoint point;
  point.offered = per_minute;
  std::vector<double> first_token, whole, decode;
  for (const Started& one : started) {
    while (!one.run.wait_for(std::chrono::milliseconds(200))) progress(over(started));
    const RunRecord record = one.run.get();
    if (record.error_kind == ErrorKind::resources) throw Failure(kResources, record.error);
    if (record.state == RunState::cancelled) continue;
    if (record.state != RunState::ok) {
      if (point.failed++ == 0) point.error = record.error;
      continue;
    }
    whole.push_back(one.late_ms + record.wall_ms);
    for (const AgentRecord& turn : record.agents) {
      if (turn.state != TurnState::ok || turn.output_tokens == 0) continue;
      first_token.push_back(turn.ttft_ms);
      if (turn.tokens_per_s > 0) decode.push_back(turn.tokens_per_s);
      point.output_tokens += turn.output_tokens;
    }
  }
  const double minutes = milliseconds_between(begin, Clock::now()) / 60'000.0;
  point.finished = static_cast<double>(whole.size()) / minutes;
  point.tokens_per_s = static_cast<double>(point.output_tokens) / (minutes * 60.0);
  point.agent_tokens_per_s = Times(std::move(decode)).quantile(0.5);
  point.first_token = Times(std::move(first_token));
  point.whole_run = Times(std::move(whole));
  return point;
}

std::vector<Trace> answers_of(const Engine& engine, const Workflow& workflow, std::span<const Question> questions,
                              const std::function<void(std::size_t over)>& progress) {
  constexpr std::size_t kAtATime = 4;
  std::vector<Trace> answers(questions.size());
  std::deque<Run> running;
  for (std::size_t i = 0; i < questions.size() + kAtATime; ++i) {
    if (i < questions.size() && !interrupted().stop_requested()) {
      RunOptions options;
      answers[i].record(options, workflow);
      running.push_back(start(engine, workflow, questions[i], std::move(options)));
    }
    if (running.empty() || (i < questions.size() && running.size() < kAtATime)) continue;
    const RunRecord record = running.front().get();
    if (record.state != RunState::ok && record.state != RunState::cancelled)
      throw Failure(record.error_kind == ErrorKind::resources ? kResources : kRunFailed, record.error);
    running.pop_front();
    progress(std::min(i + 1, questions.size()) - running.size());
  }
  return answers;
}

}  // namespace baton::cli
