// baton eval: a workflow over a dataset: how often it is right, and what it reuses.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include <baton/baton.h>

#include "sdk/cli/dataset.h"
#include "sdk/cli/eval_method.h"
#include "sdk/cli/eval_quality.h"
#include "sdk/cli/exit_code.h"
#include "sdk/cli/interrupt.h"
#include "sdk/cli/options.h"
#include "sdk/cli/terminal.h"
#include "sdk/cli/text.h"
#include "sdk/cli/verbs.h"
#include "sdk/cli/view.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Arguments {
  WorkflowArguments workflow;
  EngineArguments engine;
  std::string dataset;
  std::size_t limit = 0;
  std::vector<std::string> methods = {"full"};
  int jobs = 8;
  std::size_t floor_limit = 50;
  std::optional<std::uint64_t> seed;
  std::string timeout;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

struct Share {
  std::int64_t part = 0;
  std::int64_t whole = 0;
  void count(bool hit) {
    part += hit ? 1 : 0;
    ++whole;
  }
  double value() const { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; }
};

/// What one method came to.
struct Score {
  EvalMethod method;
  std::optional<Workflow> workflow;
  Share right;
  std::vector<std::pair<std::string, Share>> right_by_agent;  // agents that have a pattern or schema for their answer
  Share exact;              // runs whose every answer is that of full, token for token
  Share reused_entries;     // (token, layer) entries of prompts
  Share relayed_entries;    // of the placeholders that came from a segment
  Share recomputed_tokens;  // of those placeholders
  Share reused_turns;       // turns that computed no placeholder
  Quality quality;          // over forced runs
  double ttft_ms = 0;       // sum over turns
  std::int64_t turns = 0;
  std::int64_t output_tokens = 0;
  std::int64_t failed = 0;  // runs that did not end well
  double wall_ms = 0;       // sum over runs
};

/// The last turn of an agent that came to an end, or null.
const AgentRecord* last_turn(const RunRecord& record, const std::string& agent) {
  const AgentRecord* last = nullptr;
  for (const auto& turn : record.agents) {
    if (turn.agent == agent && turn.state == "ok") last = &turn;
  }
  return last;
}

/// The run's answer: what the pattern of the agent that answers found; without a pattern the output `answer`, or all
/// that the agent said.
std::string final_answer(const Workflow& workflow, const RunRecord& record) {
  const AgentRecord* turn = last_turn(record, workflow.turns().back().agent);
  if (turn != nullptr && !turn->answer.empty()) return turn->answer;
  const auto agents = workflow.agents();
  const bool has_pattern = std::any_of(agents.begin(), agents.end(), [&](const AgentInfo& agent) {
    return agent.id == workflow.turns().back().agent && agent.has_answer;
  });
  if (has_pattern) return {};
  if (const auto output = record.outputs.find("answer"); output != record.outputs.end()) return output->second;
  return turn == nullptr ? std::string() : turn->output;
}

void add(Score& score, const Workflow& workflow, const Question& question, const RunRecord& record) {
  score.right.count(record.state == "ok" && same_answer(final_answer(workflow, record), question.answer));
  score.failed += record.state == "ok" ? 0 : 1;
  for (auto& [agent, right] : score.right_by_agent) {
    const AgentRecord* turn = last_turn(record, agent);
    right.count(turn != nullptr && same_answer(turn->answer, question.answer));
  }
  for (const auto& turn : record.agents) {
    if (turn.prompt_tokens == 0) continue;
    score.reused_entries.part += turn.kv.reused;
    score.reused_entries.whole += turn.kv.entries;
    score.reused_turns.count(!turn.slots.empty() &&
                             std::all_of(turn.slots.begin(), turn.slots.end(), [](const SlotRecord& slot) {
                               return slot.reused_tokens == slot.tokens && slot.recomputed_tokens == 0;
                             }));
    for (const auto& slot : turn.slots) {
      if (slot.method == "full" || slot.method == "prefix" || slot.tokens == 0) continue;
      const std::int64_t entries = turn.kv.entries / turn.prompt_tokens * slot.tokens;
      score.relayed_entries.whole += entries;
      score.relayed_entries.part +=
          static_cast<std::int64_t>(std::llround(slot.kv_reuse_rate * static_cast<double>(entries)));
      score.recomputed_tokens.whole += slot.tokens;
      score.recomputed_tokens.part += slot.recomputed_tokens;
    }
    score.ttft_ms += turn.ttft_ms;
    ++score.turns;
    score.output_tokens += turn.output_tokens;
  }
}

/// One line, drawn anew, in a terminal; otherwise a line now and then.
class Progress {
 public:
  Progress(const Arguments& arguments, std::size_t questions) : shown_(!arguments.quiet), questions_(questions) {}

  void show(const std::vector<Score>& scores) {
    if (!shown_) return;
    const Score& score = scores.back();  // the last to be done with a question
    const auto now = Clock::now();
    const auto done = static_cast<std::size_t>(score.right.whole);
    const auto pause = can_redraw() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
    if (now - last_ < pause && done < questions_) return;
    last_ = now;
    const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
    std::string line = fmt::format("{} of {}", done, questions_);
    for (const Score& one : scores) {
      if (done > 0) line += fmt::format(", {} {:.1f} %", one.method.text, 100 * one.right.value());
    }
    if (done > 0 && done < questions_) {
      line +=
          fmt::format(", {} left", duration(ms / static_cast<double>(done) * static_cast<double>(questions_ - done)));
    }
    note(can_redraw() ? "\r\x1b[K" + head(line, terminal_size().columns - 1) : line + "\n");
  }

  /// Makes room for a line above.
  void clear() {
    if (!shown_ || !can_redraw()) return;
    note("\r\x1b[K");
    last_ = {};
  }

 private:
  bool shown_;
  std::size_t questions_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
};

std::string question_text(const Score& score, const Question& question, const RunRecord& record) {
  const Workflow& workflow = *score.workflow;
  const std::string answer = final_answer(workflow, record);
  const bool right = record.state == "ok" && same_answer(answer, question.answer);
  std::string out = styled(right ? Style::green : Style::red, right ? "right " : "wrong ") +
                    styled(Style::bold, printable(question.id, Lines::fold)) + "  " + score.method.text + "  " +
                    styled(Style::dim, duration(record.wall_ms)) + "\n";
  for (const auto& [name, value] : question.inputs) out += "  " + printable(value, Lines::fold) + "\n";
  for (const auto& turn : record.agents) {
    const std::string said = turn.state == "ok" ? printable(turn.output, Lines::fold)
                                                : turn.state + ": " + printable(turn.error, Lines::fold);
    out += "  " + styled(Style::cyan, turn_name(turn.agent, turn.round)) + "  " + said + "\n";
  }
  out +=
      fmt::format("  answer {}, expected {}\n\n", answer.empty() ? std::string("none") : printable(answer, Lines::fold),
                  printable(question.answer, Lines::fold));
  return out;
}

/// Runs every question with every method, `jobs` questions at a time, so that their agents share the engine's steps.
/// The methods take turns question by question, so that whatever the machine does meets all of them.
class Measurement {
 public:
  Measurement(const Arguments& arguments, const Engine& engine, std::vector<Score>& scores,
              const std::vector<Question>& questions)
      : arguments_(arguments),
        engine_(engine),
        scores_(scores),
        questions_(questions),
        progress_(arguments, questions.size()) {
    reference_ = EvalMethod::parse("full").load(arguments.workflow);
    const bool compares = scores.size() > 1 || scores.front().method.name != "full";
    if (compares && arguments.floor_limit > 0) {
      EngineOptions options = arguments.engine.options(arguments.workflow.default_model(), arguments.quiet);
      options.kv_dtype = "f32";
      precise_ = Engine::open(options);
      precise_->prepare(*reference_);
    }
    base_.seed = arguments.seed;
    base_.stop = interrupted();
    if (!arguments.timeout.empty()) base_.timeout = parse_duration(arguments.timeout, "--timeout");
  }

  void run() {
    progress_.show(scores_);
    std::vector<std::jthread> threads;
    for (int i = 0; i < arguments_.jobs; ++i) threads.emplace_back([this] { work(); });
    threads.clear();
    progress_.clear();
    if (error_) std::rethrow_exception(error_);
  }

  /// Null where no method was compared with full.
  const Quality* noise_floor() const { return precise_ ? &floor_ : nullptr; }

 private:
  void work() {
    for (;;) {
      std::size_t index = 0;
      {
        const std::lock_guard lock(mutex_);
        if (next_ == questions_.size() || error_ || interrupted().stop_requested()) return;
        index = next_++;
      }
      const Question& question = questions_[index];
      try {
        measure(question, index < arguments_.floor_limit);
      } catch (const InputError& wrong) {
        const std::lock_guard lock(mutex_);
        error_ =
            std::make_exception_ptr(Failure(kInvalidFile, fmt::format("question '{}': {}", question.id, wrong.what())));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  RunRecord run(const Engine& engine, const Workflow& workflow, const Question& question, Trace& trace,
                const Trace* forced = nullptr) {
    RunOptions options = base_;
    options.inputs = question.inputs;
    trace.record(options, workflow);
    if (forced != nullptr) options.forced_outputs = forced->tokens;
    return engine.run(workflow, options);
  }

  void measure(const Question& question, bool with_floor) {
    Trace reference;
    const RunRecord full = run(engine_, *reference_, question, reference);
    if (full.state == "cancelled") return;
    std::vector<std::pair<RunRecord, bool>> records;  // and whether all answers are those of full
    std::vector<Trace> forced(scores_.size());
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (scores_[i].method.name == "full") {
        records.emplace_back(full, true);
        continue;
      }
      Trace trace, ignored;
      RunRecord record = run(engine_, *scores_[i].workflow, question, trace);
      if (record.state == "cancelled") return;
      records.emplace_back(std::move(record), trace.tokens == reference.tokens);
      if (run(engine_, *scores_[i].workflow, question, forced[i], &reference).state == "cancelled") return;
    }
    Trace precise;
    if (precise_ && with_floor && run(*precise_, *reference_, question, precise, &reference).state == "cancelled")
      return;

    const std::lock_guard lock(mutex_);
    if (precise_ && with_floor) floor_.add(reference, precise, *reference_);
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const auto& [record, exact] = records[i];
      Score& score = scores_[i];
      add(score, *score.workflow, question, record);
      score.exact.count(exact);
      score.wall_ms += record.wall_ms;
      score.quality.add(reference, score.method.name == "full" ? reference : forced[i], *reference_);
      if (record.error_kind == "resources") throw Failure(kResources, record.error);
      if (!arguments_.verbose) continue;
      progress_.clear();
      note(question_text(score, question, record));
    }
    progress_.show(scores_);
  }

  const Arguments& arguments_;
  const Engine& engine_;
  std::vector<Score>& scores_;
  const std::vector<Question>& questions_;
  std::optional<Workflow> reference_;
  std::optional<Engine> precise_;  // full prefill with the KV cache in f32: how far rounding alone goes
  RunOptions base_;

  std::mutex mutex_;
  Progress progress_;
  Quality floor_;
  std::size_t next_ = 0;
  std::exception_ptr error_;
};

Json json_of(const Score& score) {
  Json by_agent = Json::object();
  for (const auto& [agent, share] : score.right_by_agent) by_agent[agent] = share.value();
  Json params = {{"agents", score.workflow->agents().size()}};
  for (const auto& [key, value] : score.method.settings) params[key] = value;
  return {{"method", score.method.name},
          {"params", std::move(params)},
          {"questions", score.right.whole},
          {"accuracy", score.right.value()},
          {"accuracy_by_agent", std::move(by_agent)},
          {"exact_match", score.exact.value()},
          {"greedy_agreement", score.quality.agreement()},
          {"kl_first_token", score.quality.kl_first_token()},
          {"kl_mean", score.quality.kl_mean()},
          {"kv_reuse_rate", score.relayed_entries.value()},
          {"recomputed_share", score.recomputed_tokens.value()},
          {"kv_reuse_rate_prompt", score.reused_entries.value()},
          {"agent_turn_reuse", score.reused_turns.value()},
          {"ttft_ms", score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0},
          {"output_tokens", score.output_tokens},
          {"failed_runs", score.failed},
          {"wall_ms", score.wall_ms}};
}

/// One line a method, under one head.
std::string table_of(const std::vector<Score>& scores, const Quality* floor) {
  std::size_t width = 12;
  for (const auto& score : scores) width = std::max(width, score.method.text.size() + 1);
  const auto columns = static_cast<int>(width);
  std::string out =
      padded("method", columns) + "  right   exact   agree   KL first    KL mean  reused  recomputed  first token\n";
  for (const auto& score : scores) {
    out += padded(score.method.text, columns) +
           fmt::format(" {:5.1f} % {:5.1f} % {:5.1f} %  {:9.2e}  {:9.2e} {:5.1f} %     {:5.1f} %  {:>11}\n",
                       100 * score.right.value(), 100 * score.exact.value(), 100 * score.quality.agreement(),
                       score.quality.kl_first_token(), score.quality.kl_mean(), 100 * score.relayed_entries.value(),
                       100 * score.recomputed_tokens.value(),
                       duration(score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0));
  }
  if (floor != nullptr) {
    out += padded("noise floor", columns) +
           fmt::format("{:26}  {:9.2e}  {:9.2e}\n", "", floor->kl_first_token(), floor->kl_mean());
  }
  return out;
}

std::string agents_of(const std::vector<Score>& scores) {
  std::string out;
  for (const auto& score : scores) {
    out += fmt::format("{}:", score.method.text);
    for (const auto& [agent, share] : score.right_by_agent)
      out += fmt::format("  {} {:.1f} %", agent, 100 * share.value());
    if (score.failed > 0) out += fmt::format("  {} runs failed", score.failed);
    out += "\n";
  }
  return out;
}

int eval(const Arguments& arguments) {
  if (!arguments.workflow.relay.empty())
    throw Failure(kUsage, "--relay: eval takes the methods to measure from --methods");
  std::vector<Score> scores;
  for (const auto& text : arguments.methods) {
    Score& score = scores.emplace_back();
    score.method = EvalMethod::parse(text);
    score.workflow = score.method.load(arguments.workflow);
    for (const auto& agent : score.workflow->agents()) {
      if (agent.has_answer) score.right_by_agent.emplace_back(agent.id, Share{});
    }
  }
  const auto questions = read_dataset(arguments.dataset, arguments.limit);
  const Engine engine = Engine::open(arguments.engine.options(arguments.workflow.default_model(), arguments.quiet));
  for (const auto& score : scores) engine.prepare(*score.workflow);
  Measurement measurement(arguments, engine, scores, questions);
  measurement.run();
  const Quality* floor = measurement.noise_floor();
  if (arguments.json) {
    Json methods = Json::array();
    for (const auto& score : scores) methods.push_back(json_of(score));
    Json noise = {{"kl_first_token", nullptr}, {"kl_mean", nullptr}};  // with full alone there is nothing to compare
    if (floor != nullptr) noise = {{"kl_first_token", floor->kl_first_token()}, {"kl_mean", floor->kl_mean()}};
    const Json all = {{"schema", 1},
                      {"workflow", scores.front().workflow->name()},
                      {"dataset", arguments.dataset},
                      {"questions", questions.size()},
                      {"noise_floor", std::move(noise)},
                      {"methods", std::move(methods)}};
    result(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    result(table_of(scores, floor) + "\n" + agents_of(scores));
  }
  return interrupted().stop_requested() ? kInterrupted : kOk;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("eval", "Run a workflow over a dataset and count the right answers");
  auto arguments = std::make_shared<Arguments>();
  arguments->workflow.add_to(*verb);
  arguments->engine.add_to(*verb);
  verb->add_option("--dataset", arguments->dataset, "Questions, one JSON object a line: id, inputs, answer")
      ->required()
      ->type_name("FILE.jsonl");
  verb->add_option("--limit", arguments->limit, "Only the first N questions")->type_name("N");
  verb->add_option("--methods", arguments->methods,
                   "Methods to measure, with parameters: relay:select.suffix=0;select.influence=0")
      ->delimiter(',')
      ->type_name("A,B");
  verb->add_option("--floor-limit", arguments->floor_limit, "Questions over which the noise floor is taken; 0: none")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--jobs", arguments->jobs, "Questions at the same time")
      ->type_name("N")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of the sampling")->type_name("N");
  verb->add_option("--timeout", arguments->timeout, "For each question")->type_name("60s");
  verb->add_flag("--json", arguments->json, "As one JSON object");
  auto* quiet = verb->add_flag("-q,--quiet", arguments->quiet, "No progress");
  verb->add_flag("-v,--verbose", arguments->verbose, "Each question, what the agents said, and whether it was right")
      ->excludes(quiet);
  verb->footer(
      "The answer is what output.pattern of the deciding (or last) agent finds; without a pattern, the output named\n"
      "answer. Numbers are compared as numbers. A line of the dataset:\n"
      "  {\"id\": \"q1\", \"inputs\": {\"user_question\": \"What is 6 x 7?\"}, \"answer\": \"42\"}\n\n"
      "Methods other than full are compared with it over the same texts: greedy agreement, KL divergence of the first\n"
      "token and of all, in nats, over the turns that read other agents. The noise floor is full prefill with its KV\n"
      "rounded to bf16 against the same with f32. Segments of any length are reused here.\n\n"
      "Examples:\n"
      "  baton eval team.yaml --dataset questions.jsonl --limit 5 -v\n"
      "  baton eval team.yaml --dataset questions.jsonl --methods full,direct,epic:epic_tokens=32,relay\n"
      "  baton eval team.yaml --dataset questions.jsonl --json > full.json");
  verb->callback([arguments, &action] { action = [arguments] { return eval(*arguments); }; });
}

}  // namespace baton::cli
