// SPDX-License-Identifier: Apache-2.0
// baton-lab eval: a workflow over a dataset: how often its answers are right, and how much KV it reuses.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include <baton/baton.h>
#include <baton/system.h>
#include <baton/turns.h>
#include <baton/version.h>

#include "sdk/console/terminal.h"
#include "sdk/lab/eval_measurement.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

using OrderedJson = nlohmann::ordered_json;

struct EvalArguments {
  EvalOptions options;
  std::string dataset;
  std::size_t limit = 0;
  std::vector<std::string> methods = {"full"};
  std::vector<int> agents;  // sizes of the team; empty: as the file has it
  std::string order = "file";
  bool ablation = false;
  bool sensitivity = false;
  bool json = false;
};

/// The methods asked for, and the variants of rectify that --ablation and --sensitivity add.
std::vector<std::string> methods_of(const EvalArguments& arguments) {
  std::vector<std::string> methods = arguments.methods;
  const auto rectify = std::find_if(methods.begin(), methods.end(),
                                    [](const std::string& text) { return text.rfind("rectify", 0) == 0; });
  const std::string base = rectify == methods.end() ? "rectify" : *rectify;
  const auto add = [&](const std::string& settings) {
    const std::string text =
        settings.empty() ? base : base + (base.find(':') == std::string::npos ? ":" : ";") + settings;
    if (std::find(methods.begin(), methods.end(), text) == methods.end()) methods.push_back(text);
  };
  const std::string score = "select.score=deviation";  // the variants are of the published choice
  const auto by_thresholds = [&](const std::string& settings) {
    if (base.find(score) != std::string::npos) return settings;
    return settings.empty() ? score : score + ";" + settings;
  };
  if (arguments.ablation) {
    for (const char* settings : {"select.all=true", "select.influence=0;select.suffix=0", "select.suffix=0", ""})
      add(by_thresholds(settings));
  }
  if (arguments.sensitivity) {
    for (const char* settings :
         {"select.deviation=1.2", "select.deviation=2", "select.deviation=3", "select.influence=1.2",
          "select.influence=2", "select.influence=3", "select.suffix=0", "select.suffix=5", "select.suffix=20"})
      add(by_thresholds(settings));
  }
  return methods;
}

void reorder(std::vector<Question>& questions, const std::string& order, std::uint64_t seed) {
  const auto length = [](const Question& question) {
    std::size_t bytes = 0;
    for (const auto& [name, value] : question.inputs) bytes += value.size();
    return bytes;
  };
  if (order == "random") {
    std::mt19937_64 random(seed);
    for (std::size_t i = questions.size(); i > 1; --i) std::swap(questions[i - 1], questions[random() % i]);
  } else if (order != "file") {
    std::stable_sort(questions.begin(), questions.end(), [&](const Question& a, const Question& b) {
      return order == "ascending" ? length(a) < length(b) : length(b) < length(a);
    });
  }
}

/// The workflow cut to `count` agents.
WorkflowArguments team_of(const WorkflowArguments& whole, int count) {
  const Workflow workflow = whole.load();
  std::vector<std::string> team = agents_at_work(workflow);
  if (count > static_cast<int>(team.size()))
    throw Failure(kUsage, fmt::format("--agents {}: the workflow has {} agents", count, team.size()));
  team.resize(static_cast<std::size_t>(workflow.turns().back().decides ? count - 1 : count));
  WorkflowArguments cut = whole;
  cut.set.push_back(fmt::format("workflow.agents=[{}]", fmt::join(team, ", ")));
  try {
    cut.load();
  } catch (const WorkflowError& error) {
    throw Failure(kUsage, fmt::format("--agents {}: {}", count, error.what()));
  }
  return cut;
}

/// One team: all methods over all questions.
struct EvalPart {
  std::vector<Score> scores;
  std::optional<Quality> floor;
};

EvalPart measure(const EvalArguments& arguments, EvalOptions options, const Engine& engine,
                 const std::vector<Question>& questions, EvalLog* log, int agents) {
  if (agents > 0) options.workflow = team_of(options.workflow, agents);
  EvalPart part;
  for (const auto& text : methods_of(arguments)) {
    Score& score = part.scores.emplace_back();
    score.method = EvalMethod::parse(text);
    const std::string pool = fmt::format("{}-{}", agents, part.scores.size());
    score.workflow = score.method.load(options.workflow, pool);
    score.forced_workflow = score.method.load(options.workflow, pool + "-forced");
    score.tally = empty_tally(*score.workflow);
    score.free = !options.forced_only || score.method.is_reference();
  }
  if (!options.quiet) note(hand_overs_of(options.workflow.load(), part.scores));
  for (const auto& score : part.scores) {
    try {
      engine.prepare(*score.workflow);
    } catch (const WorkflowError& error) {
      throw Failure(kUsage, fmt::format("--methods {}: {}", score.method.text, error.what()));
    }
  }
  EvalMeasurement measurement(options, engine, part.scores, questions, log, agents);
  measurement.run();
  if (const Quality* floor = measurement.noise_floor()) part.floor = *floor;
  return part;
}

OrderedJson json_of(const EvalArguments& arguments, const std::vector<EvalPart>& parts, std::size_t questions) {
  OrderedJson methods = OrderedJson::array();
  for (const EvalPart& part : parts) {
    for (const auto& score : part.scores) methods.push_back(json_of(score));
  }
  const auto noise = [](const EvalPart& part) -> OrderedJson {  // with full alone there is nothing to compare
    if (!part.floor) return {{"kl_first_token", nullptr}, {"kl_mean", nullptr}};
    return {{"kl_first_token", part.floor->kl_first_token()}, {"kl_mean", part.floor->kl_mean()}};
  };
  return {{"schema", 1},
          {"workflow", parts.front().scores.front().workflow->name()},
          {"dataset", arguments.dataset},
          {"questions", questions},
          {"noise_floor", noise(parts.front())},
          {"methods", std::move(methods)}};
}

/// What a continued table must have in common with its beginning.
OrderedJson settings_of(const EvalArguments& arguments) {
  const EvalOptions& options = arguments.options;
  OrderedJson settings = {{"version", version()},
                          {"workflow", digest(read_file(find_workflow(options.workflow.file)))},
                          {"set", options.workflow.set},
                          {"model", options.workflow.models},
                          {"device", options.engine.device},
                          {"slowdown", options.engine.slowdown},
                          {"dataset", digest(read_file(arguments.dataset))},
                          {"limit", arguments.limit},
                          {"order", arguments.order},
                          {"methods", methods_of(arguments)},
                          {"agents", arguments.agents},
                          {"floor_limit", options.floor_limit},
                          {"forced_only", options.forced_only},
                          {"timeout", options.timeout}};
  settings["seed"] = options.seed ? OrderedJson(*options.seed) : OrderedJson(nullptr);
  return settings;
}

std::optional<EvalLog> open_log(const EvalArguments& arguments) {
  if (arguments.options.resume.empty()) return std::nullopt;
  for (const std::string& text : methods_of(arguments)) {
    if (!EvalMethod::parse(text).remembers_questions()) continue;
    throw Failure(kUsage, fmt::format("--resume: what method {} reuses depends on the questions before, which a "
                                      "continued table does not repeat; measure it in a table of its own",
                                      text));
  }
  return std::optional<EvalLog>(std::in_place, arguments.options.resume, settings_of(arguments));
}

int eval(const EvalArguments& arguments) {
  if (arguments.dataset.empty()) throw Failure(kUsage, "--dataset is required: the questions to run it over");
  if (!arguments.options.workflow.relay.empty())
    throw Failure(kUsage, "--relay: eval takes the methods to measure from --methods");
  auto questions = read_dataset(arguments.dataset, arguments.limit);
  if (std::any_of(questions.begin(), questions.end(),
                  [](const Question& question) { return question.check.kind == AnswerCheck::Kind::python; }))
    require_python();
  reorder(questions, arguments.order, arguments.options.seed.value_or(0));
  std::optional<EvalLog> log = open_log(arguments);
  const Engine engine = Engine::open(
      arguments.options.engine.options(arguments.options.workflow.default_model(), arguments.options.quiet));
  std::vector<EvalPart> parts;
  for (const int agents : arguments.agents.empty() ? std::vector<int>{0} : arguments.agents) {
    if (interrupted().stop_requested()) break;
    const EvalPart& part =
        parts.emplace_back(measure(arguments, arguments.options, engine, questions, log ? &*log : nullptr, agents));
    if (arguments.json) continue;
    if (agents > 0) result(fmt::format("{}{} agents\n", parts.size() > 1 ? "\n" : "", agents));
    result(table_of(part.scores, part.floor ? &*part.floor : nullptr) + "\n" + agents_of(part.scores));
  }
  if (arguments.json && !parts.empty())
    result(json_of(arguments, parts, questions.size()).dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
           "\n");
  return interrupted().stop_requested() ? kInterrupted : kOk;
}

}  // namespace

void add_eval(CommandLine& line) {
  auto* verb = line.add_verb("eval", "Run a workflow over a dataset, and count the right answers");
  auto arguments = std::make_shared<EvalArguments>();
  arguments->options.workflow.add_to(*verb);
  arguments->options.engine.add_to(*verb);
  verb->add_option("--dataset", arguments->dataset, "Questions, one JSON object per line: id, inputs, answer, check")
      ->type_name("FILE.jsonl");
  verb->add_option("--limit", arguments->limit, "Only the first N questions")->type_name("N");
  verb->add_option("--methods", arguments->methods,
                   "Methods to measure, with parameters: rectify:select.suffix=0;select.influence=0")
      ->delimiter(',')
      ->type_name("A,B");
  verb->add_option("--agents", arguments->agents,
                   "Team sizes to measure: the first N - 1 of workflow.agents and `then`, or the first N")
      ->delimiter(',')
      ->range(1, 1000)
      ->type_name("N,N");
  verb->add_option("--order", arguments->order,
                   "Order of the questions, which matters to methods that learn from earlier ones")
      ->one_of({"file", "random", "ascending", "descending"})
      ->capture_default_str();
  verb->add_flag("--ablation", arguments->ablation,
                 "Also measure rectify with its layers alone, then with each way of choosing tokens added");
  verb->add_flag("--sensitivity", arguments->sensitivity, "Also measure rectify with other thresholds");
  verb->add_option("--floor-limit", arguments->options.floor_limit,
                   "Number of questions over which the noise floor is measured; 0: none")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--jobs", arguments->options.jobs, "Number of questions that run concurrently")
      ->type_name("N")
      ->range(1, 256)
      ->capture_default_str();
  verb->add_option("--seed", arguments->options.seed, "Seed of the sampling")->type_name("N");
  verb->add_option("--timeout", arguments->options.timeout, "Time limit of each question")->type_name("60s");
  verb->add_option("--answers", arguments->options.answers,
                   "Append a JSON line for each question and method to FILE: every agent's answer as token ids")
      ->type_name("FILE.jsonl");
  verb->add_option("--resume", arguments->options.resume,
                   "Append each finished question to FILE, and take those that it already holds from there")
      ->type_name("FILE.jsonl");
  verb->add_flag("--forced-only", arguments->options.forced_only,
                 "Run the methods only over the answers of full: divergences and reuse, no accuracy, half the time");
  verb->moved("--perplexity", "baton-lab perplexity TEXT --model PATH");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  auto* quiet = verb->add_flag("-q,--quiet", arguments->options.quiet, "Show no progress");
  verb->add_flag("-v,--verbose", arguments->options.verbose,
                 "Show each question, the agents' outputs, and whether the answer is right")
      ->excludes(quiet);
  verb->footer(
      "The answer is what output.pattern of the deciding (or last) agent finds; without a pattern, the output named\n"
      "answer. Numbers are compared as numbers. A line of the dataset:\n"
      "  {\"id\": \"q1\", \"inputs\": {\"user_question\": \"What is 6 x 7?\"}, \"answer\": \"42\", \"check\": "
      "\"number\"}\n"
      "check: text (without it), number, choice, f1, or {\"python\": tests}, which run behind the answer's code.\n\n"
      "Methods other than full are compared with it over the same texts: greedy agreement, KL divergence of the first\n"
      "token and of all, in nats, over the turns that read other agents. The noise floor is full prefill with its KV\n"
      "rounded to bf16 against the same with f32. Segments of any length are reused here, except by auto.\n"
      "Prompts that name agents one by one cannot do without them: --agents takes those with `for: peers`.\n\n"
      "Examples:\n"
      "  baton-lab eval team.yaml --dataset questions.jsonl --limit 5 -v\n"
      "  baton-lab eval team.yaml --dataset questions.jsonl --methods full,direct,epic:epic_tokens=32,rectify\n"
      "  baton-lab eval team.yaml --dataset questions.jsonl --methods full,rectify --agents 2,3,4 --ablation\n"
      "  baton-lab eval team.yaml --dataset questions.jsonl --json > full.json");
  verb->run([arguments] { return eval(*arguments); });
}

}  // namespace baton::inline v1::lab
