// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/load_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/plots.h"

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

namespace baton::inline v1::lab {
using namespace cli;

namespace {

std::string shown(const Times& times, double fraction) {
  return times.empty() ? "-" : duration(times.quantile(fraction));
}

}  // namespace

std::string table_of(const std::vector<LoadRow>& rows) {
  std::size_t columns = 8;
  for (const LoadRow& row : rows) columns = std::max(columns, row.method.size());
  const auto width = static_cast<int>(columns);
  std::string out = fmt::format(
      "{:>8}  {}  {:>8}  {:>20}  {:>20}  {:>18}\n{:>8}  {}  {:>8}  {:>9}  {:>9}  {:>9}  "
      "{:>9}  {:>8}  {:>8}\n",
      "runs", padded("", width), "finished", "first token of turns", "whole run", "tokens/s", "a minute",
      padded("method", width), "a minute", "median", "95 %", "median", "95 %", "of a turn", "all");
  for (const LoadRow& row : rows) {
    const LoadPoint& point = row.point;
    out += fmt::format("{:8g}  {}  {:8.1f}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9.1f}  {:>7.1f}", point.offered,
                       padded(row.method, width), point.finished, shown(point.first_token, 0.5),
                       shown(point.first_token, 0.95), shown(point.whole_run, 0.5), shown(point.whole_run, 0.95),
                       point.agent_tokens_per_s, point.tokens_per_s);
    if (point.failed > 0) out += fmt::format("  {} failed: {}", point.failed, printable(point.error, Lines::fold));
    out += "\n";
  }
  return out;
}

nlohmann::ordered_json json_of(const std::vector<LoadRow>& rows) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const LoadRow& row : rows) {
    const LoadPoint& point = row.point;
    points.push_back({{"method", row.method},
                      {"offered_per_minute", point.offered},
                      {"finished_per_minute", point.finished},
                      {"failed_runs", point.failed},
                      {"ttft_ms", point.first_token.to_json()},
                      {"run_ms", point.whole_run.to_json()},
                      {"output_tokens", point.output_tokens},
                      {"turn_tokens_per_s", point.agent_tokens_per_s},
                      {"tokens_per_s", point.tokens_per_s}});
  }
  return points;
}

// A workflow under load as SVG: times over the rate of arrivals, a colour for each method.

namespace {

constexpr double kWidth = 720, kLeft = 80, kRight = 24;
constexpr double kTitle = 54, kLine = 18, kPanel = 190, kGap = 34, kBelow = 66;
constexpr std::array kColours = {"#1f5fa8", "#a05a00", "#2a7d4f", "#8a3f8f", "#b3322c", "#4f5b66"};

const char* colour_of(std::size_t method) { return kColours[method % kColours.size()]; }

/// 1, 2 or 5 times a power of ten that cuts [0, high] into at most `pieces`.
double step_for(double high, double pieces) {
  double step = std::pow(10.0, std::floor(std::log10(high / pieces)));
  while (high / step > pieces) {
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (high / step > pieces) step *= factor;
    }
  }
  return step;
}

/// Some times of all methods over the rates.
class LoadPanel {
 public:
  using Of = const Times& (*)(const LoadPoint&);

  LoadPanel(double top, const std::vector<LoadRow>& rows, Of times) : top_(top), rows_(rows), times_(times) {
    for (const LoadRow& row : rows) {
      rate_ = std::max(rate_, row.point.offered);
      high_ = std::max(high_, times(row.point).quantile(0.95));
    }
    step_ = step_for(high_, 6);
    high_ = std::ceil(high_ / step_) * step_;
  }

  double x(double rate) const { return kLeft + rate * (kWidth - kLeft - kRight - 10) / rate_; }

  Markup axes(const std::string& title) const {
    Markup out;
    for (int i = 0; i * step_ <= high_ * 1.001; ++i) {
      const double at = y(i * step_);
      out += html(
          "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/><text x='{}' y='{:.1f}' class='end'>{}</text>\n",
          kLeft, kWidth - kRight, at, at, kLeft - 8, at + 4, i == 0 ? "0" : duration(i * step_));
    }
    return out + html("<text class='middle' transform='translate(16 {:.1f}) rotate(-90)'>{}</text>\n",
                      top_ + kPanel / 2, title);
  }

  Markup curves(const std::vector<std::string>& methods) const {
    Markup out;
    for (std::size_t i = 0; i < methods.size(); ++i) {
      out += curve(methods[i], 0.95, html(" stroke-dasharray='4 4' opacity='0.6' stroke='{}'", colour_of(i)));
      out += curve(methods[i], 0.5, html(" stroke='{}'", colour_of(i)));
      for (const LoadRow& row : rows_) {
        if (row.method != methods[i] || times_(row.point).empty()) continue;
        out += html("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>\n", x(row.point.offered),
                    y(times_(row.point).quantile(0.5)), colour_of(i));
      }
    }
    return out;
  }

 private:
  double y(double ms) const { return top_ + kPanel - ms / high_ * kPanel; }

  Markup curve(const std::string& method, double fraction, const Markup& style) const {
    Markup points;
    for (const LoadRow& row : rows_) {
      if (row.method == method && !times_(row.point).empty())  // some run ended well
        points += html("{:.1f},{:.1f} ", x(row.point.offered), y(times_(row.point).quantile(fraction)));
    }
    return html("<polyline points='{}' fill='none' stroke-width='1.8'{}/>\n", points, style);
  }

  double top_;
  const std::vector<LoadRow>& rows_;
  Of times_;
  double rate_ = 0, high_ = 1, step_ = 1;
};

}  // namespace

Markup load_svg(const std::string& workflow, std::vector<LoadRow> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const LoadRow& a, const LoadRow& b) { return a.point.offered < b.point.offered; });
  std::vector<std::string> methods;
  for (const LoadRow& row : rows) {
    if (std::find(methods.begin(), methods.end(), row.method) == methods.end()) methods.push_back(row.method);
  }
  const double top = kTitle + kLine * static_cast<double>(methods.size());
  const double bottom = top + 2 * kPanel + kGap, height = bottom + kBelow;
  const LoadPanel whole(top, rows, [](const LoadPoint& point) -> const Times& { return point.whole_run; });
  const LoadPanel first(top + kPanel + kGap, rows,
                        [](const LoadPoint& point) -> const Times& { return point.first_token; });
  Markup out = begin_svg(kWidth, height, kLeft, workflow + " under load");
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const double y = 42 + kLine * static_cast<double>(i);
    out += html(
        "<line x1='{0}' x2='{1}' y1='{2}' y2='{2}' stroke='{3}' stroke-width='3'/><text x='{4}' y='{5}'>{6}</text>\n",
        kLeft, kLeft + 24, y, colour_of(i), kLeft + 32, y + 4, escaped(methods[i]));
  }
  out += whole.axes("whole run") + first.axes("first token of a turn");
  out += whole.curves(methods) + first.curves(methods);
  double last = -kWidth;
  for (const LoadRow& row : rows) {
    const double x = first.x(row.point.offered);
    if (x - last < 30) continue;  // the same rate, or no room
    last = x;
    out += html("<text x='{:.1f}' y='{}' class='middle'>{:g}</text>\n", x, bottom + 18, row.point.offered);
  }
  out += html("<text x='{}' y='{}' class='middle'>runs that arrive in a minute</text>\n", (kLeft + kWidth - kRight) / 2,
              bottom + 36);
  out += html(
      "<text x='{}' y='{}' class='end' font-size='10' fill='#777'>lines: median; dashed: 95 %; waiting is "
      "included</text>\n",
      kWidth - kRight, height - 8);
  return out + "</svg>\n";
}

}  // namespace baton::inline v1::lab
