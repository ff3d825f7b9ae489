// SPDX-License-Identifier: Apache-2.0
// baton-lab load: how long the runs of a workflow take when they arrive at random times, under several methods and
// rates.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/baton.h>

#include "sdk/console/terminal.h"
#include "sdk/lab/eval_score.h"
#include "sdk/lab/load_measurement.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;
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
