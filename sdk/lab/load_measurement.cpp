// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/load_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <variant>

#include "sdk/console/exit_code.h"
#include "sdk/console/interrupt.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

RunOptions options_for(const Question& question) {
  RunOptions options;
  options.inputs = question.inputs;
  options.stop = interrupted();
  return options;
}

/// Returns when the time has come, or at an interrupt.
void sleep_until(Clock::time_point time) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, interrupted(), time, [] { return false; });
}

/// Runs that go on, and the sums over those that are over. Finished runs are destroyed at once: each holds a thread and
/// its events.
class LoadedRuns {
 public:
  void start(const Engine& engine, const Workflow& workflow, const LoadRuns& runs, std::size_t index,
             Clock::time_point arrival) {
    const Question& question = runs.questions[index];
    RunOptions options = options_for(question);
    if (!runs.answers.empty()) options.forced_outputs = runs.answers[index].tokens;
    const auto end = std::make_shared<Clock::time_point>(arrival);
    options.on_event = [end](const Event& event) {
      if (std::holds_alternative<RunFinished>(event)) *end = Clock::now();
    };
    try {
      running_.push_back({engine.start(workflow, options), arrival, end});
    } catch (const std::exception& wrong) {
      fail(fmt::format("question '{}': {}", question.id, wrong.what()));
    }
  }

  /// Returns the number of runs that are over.
  std::size_t collect() {
    for (auto one = running_.begin(); one != running_.end();) {
      if (!one->run.wait_for(std::chrono::milliseconds(0))) {
        ++one;
        continue;
      }
      try {
        add(one->run.get(), milliseconds_between(one->arrival, *one->end));
      } catch (const std::exception& wrong) {
        fail(wrong.what());
      }
      one = running_.erase(one);
    }
    return over_;
  }

  bool any() const { return !running_.empty(); }
  void wait_for_first() { running_.front().run.wait_for(std::chrono::milliseconds(200)); }

  LoadPoint point(double per_minute, double minutes) {
    LoadPoint point;
    point.offered = per_minute;
    point.finished = static_cast<double>(whole_.size()) / minutes;
    point.failed = failed_;
    point.error = error_;
    point.output_tokens = tokens_;
    point.tokens_per_s = static_cast<double>(tokens_) / (minutes * 60.0);
    point.agent_tokens_per_s = Times(std::move(decode_)).quantile(0.5);
    point.first_token = Times(std::move(first_token_));
    point.whole_run = Times(std::move(whole_));
    return point;
  }

 private:
  struct Started {
    Run run;
    Clock::time_point arrival;
    std::shared_ptr<const Clock::time_point> end;
  };

  void fail(const std::string& error) {
    ++over_;
    if (failed_++ == 0) error_ = error;
  }

  void add(const RunRecord& record, double ms) {
    if (record.state != RunState::ok && record.state != RunState::cancelled) return fail(record.error);
    ++over_;
    if (record.state == RunState::cancelled) return;
    whole_.push_back(ms);
    for (const AgentRecord& turn : record.agents) {
      if (turn.state != TurnState::ok || turn.output_tokens == 0) continue;
      first_token_.push_back(turn.ttft_ms);
      if (turn.tokens_per_s > 0) decode_.push_back(turn.tokens_per_s);
      tokens_ += turn.output_tokens;
    }
  }

  std::list<Started> running_;
  std::size_t over_ = 0;
  std::int64_t failed_ = 0, tokens_ = 0;
  std::string error_;
  std::vector<double> first_token_, whole_, decode_;
};

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
  if (empty()) return nullptr;
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
  LoadedRuns loaded;
  const std::vector<double> times = arrival_times(runs.questions.size(), per_minute, runs.seed);
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto arrival =
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(times[i]));
    sleep_until(arrival);
    if (interrupted().stop_requested()) break;
    loaded.start(engine, workflow, runs, i, arrival);
    progress(std::min(loaded.collect(), times.size() - 1));
  }
  while (loaded.any()) {
    loaded.wait_for_first();
    progress(std::min(loaded.collect(), times.size() - 1));
  }
  const double minutes = milliseconds_between(begin, Clock::now()) / 60'000.0;
  progress(times.size());
  return loaded.point(per_minute, minutes);
}

std::vector<Trace> answers_of(const Engine& engine, const Workflow& workflow, std::span<const Question> questions,
                              std::size_t at_a_time, const std::function<void(std::size_t over)>& progress) {
  std::vector<Trace> answers(questions.size());
  std::deque<Run> running;
  const auto finish_first = [&] {
    const RunRecord record = running.front().get();
    if (record.state != RunState::ok && record.state != RunState::cancelled)
      throw Failure(record.error_kind == ErrorKind::resources ? kResources : kRunFailed, record.error);
    running.pop_front();
  };
  for (std::size_t i = 0; i < questions.size() && !interrupted().stop_requested(); ++i) {
    if (running.size() == at_a_time) finish_first();
    progress(i - running.size());
    RunOptions options = options_for(questions[i]);
    answers[i].record(options, workflow);
    try {
      running.push_back(engine.start(workflow, options));
    } catch (const InputError& wrong) {
      throw Failure(kInvalidFile, fmt::format("question '{}': {}", questions[i].id, wrong.what()));
    }
  }
  while (!running.empty()) finish_first();
  progress(questions.size());
  return answers;
}

}  // namespace baton::inline v1::lab
