// SPDX-License-Identifier: Apache-2.0
// baton-lab load: how long the runs of a workflow take when they arrive at random times, under several methods and
// rates.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/baton.h>

#include "sdk/console/exit_code.h"
#include "sdk/console/interrupt.h"
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

class MethodsUnderLoad {
 public:
  explicit MethodsUnderLoad(const LoadArguments& arguments) : arguments_(arguments) {
    read_questions();
    if (!arguments_.quiet) progress_ = progress_line("measuring");
    open();
  }

  std::vector<LoadRow> measure() {
    const std::span<const Question> all(questions_);
    const std::span<const Question> measured = all.subspan(arguments_.warm_up);
    std::vector<Trace> answers;
    if (arguments_.same_answers) {
      const Workflow full = EvalMethod::parse("full").load_as_run(arguments_.workflow);
      answers =
          answers_of(methods_.front().engine, full, measured, kAtATime, shown("answers of full", measured.size()));
    }
    for (const Loaded& one : methods_) {
      answers_of(one.engine, one.workflow, all.first(arguments_.warm_up), 1,
                 shown(one.method.text + ", warm-up", arguments_.warm_up));
      one.engine.finish_measuring(std::chrono::minutes(5), interrupted());
    }
    std::vector<LoadRow> rows;
    for (std::size_t rate = 0; rate < arguments_.rates.size(); ++rate) {
      const std::size_t first = rate * arguments_.runs;
      LoadRuns runs{measured.subspan(first, arguments_.runs), {}, arguments_.seed};
      if (!answers.empty()) runs.answers = std::span(answers).subspan(first, arguments_.runs);
      for (const Loaded& one : methods_) {
        const double per_minute = arguments_.rates[rate];
        const LoadPoint point =
            measure_load(one.engine, one.workflow, runs, per_minute,
                         shown(fmt::format("{} at {:g} a minute", one.method.text, per_minute), arguments_.runs));
        if (interrupted().stop_requested()) return rows;
        rows.push_back({one.method.text, point});
      }
    }
    return rows;
  }

  std::string workflow_name() const { return methods_.front().workflow.name(); }

 private:
  void read_questions() {
    const std::size_t needed = arguments_.warm_up + arguments_.runs * arguments_.rates.size();
    questions_ = read_dataset(arguments_.dataset, needed);
    if (questions_.size() < needed) {
      throw Failure(kUsage, fmt::format("--dataset {}: expected {} questions, since none runs twice: --warm-up {} and "
                                        "--runs {} for each of {} rates; found {}",
                                        arguments_.dataset, needed, arguments_.warm_up, arguments_.runs,
                                        arguments_.rates.size(), questions_.size()));
    }
  }

  void open() {
    for (const std::string& text : arguments_.methods) {
      EvalMethod method = EvalMethod::parse(text);
      Workflow workflow = method.load_as_run(arguments_.workflow);
      EngineOptions options = arguments_.engine.options(arguments_.workflow.default_model(), arguments_.quiet);
      options.drafts = options.drafts && !arguments_.same_answers;  // tokens that are known run as one draft
      const Engine engine = Engine::open(options);
      engine.prepare(workflow);
      methods_.push_back({std::move(method), std::move(workflow), engine});
    }
  }

  std::function<void(std::size_t)> shown(std::string what, std::size_t of) const {
    return [this, what = std::move(what), of](std::size_t over) {
      if (progress_) progress_(what, static_cast<double>(over) / static_cast<double>(std::max<std::size_t>(of, 1)));
    };
  }

  const LoadArguments& arguments_;
  std::vector<Question> questions_;
  std::vector<Loaded> methods_;
  std::function<void(const std::string&, double)> progress_;
};

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
  MethodsUnderLoad table(arguments);
  const std::vector<LoadRow> rows = table.measure();
  if (arguments.json) {
    result(json_of(arguments, table.workflow_name(), rows).dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
           "\n");
  } else if (!rows.empty()) {
    result(table_of(rows));
  }
  if (!arguments.svg.empty() && !rows.empty())
    write_whole_file(arguments.svg, load_svg(table.workflow_name(), rows).str());
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
