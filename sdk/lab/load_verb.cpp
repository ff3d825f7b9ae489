// SPDX-License-Identifier: Apache-2.0
// baton-lab load: a workflow under load, runs that arrive at random times, while those before them go on.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sdk/console/html.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/dataset.h"
#include "sdk/lab/eval_score.h"
#include "sdk/lab/verbs.h"

#include <baton/baton.h>

namespace baton::inline v1::lab {

using namespace cli;

/// Times in milliseconds, in ascending order.
class Times {
 public:
  explicit Times(std::vector<double> values);
  bool empty() const { return values_.empty(); }
  double mean() const;
  /// Linear between the two nearest; `fraction` from 0 to 1. 0 without values.
  double quantile(double fraction) const;
  nlohmann::ordered_json to_json() const;  // null without values

 private:
  std::vector<double> values_;
};

/// One method at one rate.
struct LoadPoint {
  double offered = 0;       // runs a minute that arrived
  double finished = 0;      // runs a minute that ended well, from the first arrival to the last end
  std::int64_t failed = 0;  // runs that did not
  std::string error;        // of the first of them
  // Of runs that ended well.
  Times first_token{{}};  // of turns: from their last input, with waiting
  Times whole_run{{}};    // from arrival to end
  std::int64_t output_tokens = 0;
  double tokens_per_s = 0;        // of all agents, from the first arrival to the last end
  double agent_tokens_per_s = 0;  // median over turns: decode speed
};

/// The times of `count` arrivals of a Poisson process, in milliseconds after the first; the same arguments give the
/// same times, and another rate the same times scaled.
std::vector<double> arrival_times(std::size_t count, double per_minute, std::uint64_t seed);

struct LoadRuns {
  std::span<const Question> questions;
  std::span<const Trace> answers;  // of each question, which its run is forced to; empty: runs choose their own
  std::uint64_t seed = 0;          // of the arrivals
};

/// Starts a run for each question when it arrives, and waits for all. `progress`: called with the number of runs that
/// are over. After an interrupt the rest of the runs is neither started nor counted.
LoadPoint measure_load(const Engine& engine, const Workflow& workflow, const LoadRuns& runs, double per_minute,
                       const std::function<void(std::size_t over)>& progress);

/// The answers of each question, from runs of a workflow, of which `at_a_time` run concurrently. Throws Failure where a
/// run fails, and for a question that does not fit the workflow.
std::vector<Trace> answers_of(const Engine& engine, const Workflow& workflow, std::span<const Question> questions,
                              std::size_t at_a_time, const std::function<void(std::size_t over)>& progress);

// The results of a workflow under load: a table, JSON, a picture.

struct LoadRow {
  std::string method;
  LoadPoint point;
};

std::string table_of(const std::vector<LoadRow>& rows);

/// An array with an object for each row.
nlohmann::ordered_json json_of(const std::vector<LoadRow>& rows);

/// Times over rates, as an SVG file of its own.
Markup load_svg(const std::string& workflow, std::vector<LoadRow> rows);

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
    if (!runs.answers.empty()) runs.answers[index].force(options);
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

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kAtATime = 4;  // runs of full that make the answers

struct LoadArguments {
  WorkflowArguments workflow;
  EngineArguments engine;
  std::string dataset;
  std::vector<double> rates;
  std::vector<std::string> methods = {"full", "prefix", "auto"};
  std::size_t runs = 20;
  std::size_t warm_up = 3;
  std::uint64_t seed = 0;
  bool same_answers = false;
  std::string svg;  // a file; empty: none
  bool json = false;
  bool quiet = false;
};

/// A method with an engine of its own: what one stores must not serve another.
struct Loaded {
  EvalMethod method;
  Workflow workflow;
  Engine engine;
};

std::vector<Question> questions_for(const LoadArguments& arguments) {
  const std::size_t needed = arguments.warm_up + arguments.runs * arguments.rates.size();
  std::vector<Question> questions = read_dataset(arguments.dataset, needed);
  if (questions.size() < needed) {
    throw Failure(kUsage, fmt::format("--dataset {}: expected {} questions, since none runs twice: --warm-up {} and "
                                      "--runs {} for each of {} rates; found {}",
                                      arguments.dataset, needed, arguments.warm_up, arguments.runs,
                                      arguments.rates.size(), questions.size()));
  }
  return questions;
}

std::vector<Loaded> open_methods(const LoadArguments& arguments) {
  std::vector<Loaded> methods;
  for (const std::string& text : arguments.methods) {
    EvalMethod method = EvalMethod::parse(text);
    Workflow workflow = method.load_as_run(arguments.workflow);
    EngineOptions options = arguments.engine.options(arguments.workflow.default_model(), arguments.quiet);
    options.drafts = options.drafts && !arguments.same_answers;  // tokens that are known run as one draft
    const Engine engine = Engine::open(options);
    engine.prepare(workflow);
    methods.push_back({std::move(method), std::move(workflow), engine});
  }
  return methods;
}

/// Each rate under each method, until a stop is requested.
std::vector<LoadRow> measure(const LoadArguments& arguments, const std::vector<Question>& questions,
                             const std::vector<Loaded>& methods) {
  std::function<void(const std::string&, double)> progress;
  if (!arguments.quiet) progress = progress_line("measuring");
  const auto shown = [&](std::string what, std::size_t of) {
    return [&progress, what = std::move(what), of](std::size_t over) {
      if (progress) progress(what, static_cast<double>(over) / static_cast<double>(std::max<std::size_t>(of, 1)));
    };
  };
  const std::span<const Question> all(questions);
  const std::span<const Question> measured = all.subspan(arguments.warm_up);
  std::vector<Trace> answers;
  if (arguments.same_answers) {
    const Workflow full = EvalMethod::parse("full").load_as_run(arguments.workflow);
    answers = answers_of(methods.front().engine, full, measured, kAtATime, shown("answers of full", measured.size()));
  }
  for (const Loaded& one : methods) {
    answers_of(one.engine, one.workflow, all.first(arguments.warm_up), 1,
               shown(one.method.text + ", warm-up", arguments.warm_up));
    one.engine.finish_measuring(std::chrono::minutes(5), interrupted());
  }
  std::vector<LoadRow> rows;
  for (std::size_t rate = 0; rate < arguments.rates.size(); ++rate) {
    const std::size_t first = rate * arguments.runs;
    LoadRuns runs{measured.subspan(first, arguments.runs), {}, arguments.seed};
    if (!answers.empty()) runs.answers = std::span(answers).subspan(first, arguments.runs);
    for (const Loaded& one : methods) {
      const double per_minute = arguments.rates[rate];
      const LoadPoint point =
          measure_load(one.engine, one.workflow, runs, per_minute,
                       shown(fmt::format("{} at {:g} a minute", one.method.text, per_minute), arguments.runs));
      if (interrupted().stop_requested()) return rows;
      rows.push_back({one.method.text, point});
    }
  }
  return rows;
}

OrderedJson json_of(const LoadArguments& arguments, const std::string& workflow, const std::vector<LoadRow>& rows) {
  return {{"schema", 1},
          {"workflow", workflow},
          {"dataset", arguments.dataset},
          {"runs", arguments.runs},
          {"warm_up", arguments.warm_up},
          {"seed", arguments.seed},
          {"same_answers", arguments.same_answers},
          {"points", json_of(rows)}};
}

/// Empty for a rate that can be measured; a check of the range alone lets "nan" pass.
std::string mistake_in_rate(const std::string& text) {
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  return error == std::errc() && end == text.data() + text.size() && rate >= 0.001 && rate <= 1e6
             ? std::string()
             : fmt::format("{}: expected runs a minute, 0.001 to 1000000", text);
}

template <typename T>
void refuse_repeats(const std::string& option, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) throw Failure(kUsage, fmt::format("{}: {} is there twice", option, *twice));
}

int load(const LoadArguments& arguments) {
  refuse_repeats("--rates", arguments.rates);
  refuse_repeats("--methods", arguments.methods);
  if (!arguments.workflow.relay.empty())
    throw Failure(kUsage, "--relay: load takes the methods to measure from --methods");
  const std::vector<Question> questions = questions_for(arguments);
  const std::vector<Loaded> methods = open_methods(arguments);
  const std::vector<LoadRow> rows = measure(arguments, questions, methods);
  const std::string workflow = methods.front().workflow.name();
  if (arguments.json) {
    result(json_of(arguments, workflow, rows).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  } else if (!rows.empty()) {
    result(table_of(rows));
  }
  if (!arguments.svg.empty() && !rows.empty()) write_whole_file(arguments.svg, load_svg(workflow, rows).str());
  if (interrupted().stop_requested()) return kInterrupted;
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const LoadRow& row) { return row.point.failed > 0; });
  return failed ? kRunFailed : kOk;
}

}  // namespace

void add_load(CommandLine& line) {
  auto* verb = line.add_verb("load", "Run a workflow under load: runs that arrive at random times");
  auto arguments = std::make_shared<LoadArguments>();
  arguments->workflow.add_to(*verb);
  arguments->engine.add_to(*verb);
  verb->add_option("--dataset", arguments->dataset, "Questions, as of 'baton-lab eval'; none runs twice under a method")
      ->required()
      ->type_name("FILE.jsonl");
  verb->add_option("--rates", arguments->rates, "Runs that arrive in a minute, on average; each is measured")
      ->required()
      ->delimiter(',')
      ->check(mistake_in_rate)
      ->type_name("N,N");
  verb->add_option("--methods", arguments->methods, "Methods to measure, with settings as of 'baton-lab eval'")
      ->delimiter(',')
      ->type_name("A,B")
      ->capture_default_str();
  verb->add_option("--runs", arguments->runs, "Number of runs at each rate")
      ->range(1, 100000)
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--warm-up", arguments->warm_up,
                   "Number of questions that each method runs first, unmeasured, so that auto knows its places")
      ->range(0, 1000)
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of the times of arrival, which all methods share")
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag(
      "--same-answers", arguments->same_answers,
      "All methods write the answers of full prefill, token by token, so that they differ in nothing but time");
  verb->add_option("--svg", arguments->svg, "Also draw the times over the rates")->type_name("FILE.svg");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->add_flag("-q,--quiet", arguments->quiet, "Show no progress");
  verb->footer(
      "The gaps between arrivals are those of a Poisson process. A run starts when it arrives, however many others go\n"
      "on, and shares the engine's steps with them. The first token of a turn is timed from its last input, a whole "
      "run\n"
      "from its arrival, waiting included. Where fewer runs finish in a minute than arrive, the machine is "
      "overloaded.\n"
      "Each method has an engine of its own, which holds the model once more.\n\n"
      "Examples:\n"
      "  baton-lab load team.yaml --dataset questions.jsonl --rates 4,8,16\n"
      "  baton-lab load team.yaml --dataset questions.jsonl --rates 10 --methods full,rectify:reuse=0.8 "
      "--same-answers");
  verb->run([arguments] { return load(*arguments); });
}

}  // namespace baton::inline v1::lab
