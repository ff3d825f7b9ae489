// baton eval: a workflow over a dataset: how often it is right, and what it reuses.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include <baton/baton.h>

#include "sdk/cli/dataset.h"
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
  std::string method;
  Share right;
  std::vector<std::pair<std::string, Share>> right_by_agent;  // agents that have a pattern or schema for their answer
  Share reused_entries;                         // (token, layer) entries
  Share reused_turns;                           // turns that computed no placeholder
  double ttft_ms = 0;                           // sum over turns
  std::int64_t turns = 0;
  std::int64_t output_tokens = 0;
  std::int64_t failed = 0;                      // runs that did not end well
  double wall_ms = 0;
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
    score.reused_turns.count(!turn.slots.empty() && std::all_of(turn.slots.begin(), turn.slots.end(), [](const SlotRecord& slot) {
      return slot.reused_tokens == slot.tokens && slot.recomputed_tokens == 0;
    }));
    score.ttft_ms += turn.ttft_ms;
    ++score.turns;
    score.output_tokens += turn.output_tokens;
  }
}

/// One line, drawn anew, in a terminal; otherwise a line now and then.
class Progress {
 public:
  Progress(const Arguments& arguments, std::size_t questions) : shown_(!arguments.quiet), questions_(questions) {}

  void show(const Score& score) {
    if (!shown_) return;
    const auto now = Clock::now();
    const auto done = static_cast<std::size_t>(score.right.whole);
    const auto pause = can_redraw() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
    if (now - last_ < pause && done < questions_) return;
    last_ = now;
    const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
    std::string line = fmt::format("{}: {} of {}", score.method, done, questions_);
    if (done > 0) line += fmt::format(", {:.1f} % right", 100 * score.right.value());
    if (done > 0 && done < questions_) {
      line += fmt::format(", {} left", duration(ms / static_cast<double>(done) * static_cast<double>(questions_ - done)));
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

std::string question_text(const Workflow& workflow, const Question& question, const RunRecord& record) {
  const std::string answer = final_answer(workflow, record);
  const bool right = record.state == "ok" && same_answer(answer, question.answer);
  std::string out = styled(right ? Style::green : Style::red, right ? "right " : "wrong ") +
                    styled(Style::bold, printable(question.id, Lines::fold)) + "  " + styled(Style::dim, duration(record.wall_ms)) + "\n";
  for (const auto& [name, value] : question.inputs) out += "  " + printable(value, Lines::fold) + "\n";
  for (const auto& turn : record.agents) {
    const std::string said = turn.state == "ok" ? printable(turn.output, Lines::fold) : turn.state + ": " + printable(turn.error, Lines::fold);
    out += "  " + styled(Style::cyan, turn_name(turn.agent, turn.round)) + "  " + said + "\n";
  }
  out += fmt::format("  answer {}, expected {}\n\n", answer.empty() ? std::string("none") : printable(answer, Lines::fold),
                     printable(question.answer, Lines::fold));
  return out;
}

/// Runs the questions, `jobs` at a time, so that their agents share the engine's steps. Stops early when interrupted.
Score measure(const Arguments& arguments, const Engine& engine, const Workflow& workflow, const std::string& method,
              const std::vector<Question>& questions) {
  Score score;
  score.method = method;
  for (const auto& agent : workflow.agents()) {
    if (agent.has_answer) score.right_by_agent.emplace_back(agent.id, Share{});
  }
  Progress progress(arguments, questions.size());
  progress.show(score);
  RunOptions options;
  options.seed = arguments.seed;
  options.stop = interrupted();
  if (!arguments.timeout.empty()) options.timeout = parse_duration(arguments.timeout, "--timeout");

  std::mutex mutex;
  std::size_t next = 0;
  std::exception_ptr error;
  const auto start = Clock::now();
  const auto work = [&] {
    for (;;) {
      const Question* question = nullptr;
      {
        const std::lock_guard lock(mutex);
        if (next == questions.size() || error || interrupted().stop_requested()) return;
        question = &questions[next++];
      }
      try {
        RunOptions own = options;
        own.inputs = question->inputs;
        const RunRecord record = engine.run(workflow, own);
        if (record.state == "cancelled") return;
        const std::lock_guard lock(mutex);
        add(score, workflow, *question, record);
        if (record.error_kind == "resources") throw Failure(kResources, record.error);
        if (arguments.verbose) {
          progress.clear();
          note(question_text(workflow, *question, record));
        }
        progress.show(score);
      } catch (const InputError& wrong) {
        const std::lock_guard lock(mutex);
        error = std::make_exception_ptr(Failure(kInvalidFile, fmt::format("question '{}': {}", question->id, wrong.what())));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < arguments.jobs; ++i) threads.emplace_back(work);
  threads.clear();
  progress.clear();
  if (error) std::rethrow_exception(error);
  score.wall_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return score;
}

Json json_of(const Score& score, std::size_t agents) {
  Json by_agent = Json::object();
  for (const auto& [agent, share] : score.right_by_agent) by_agent[agent] = share.value();
  // Null: comparing with the outputs and logits of method full is not part of this measurement.
  return {{"method", score.method},
          {"params", {{"agents", agents}}},
          {"questions", score.right.whole},
          {"accuracy", score.right.value()},
          {"accuracy_by_agent", std::move(by_agent)},
          {"exact_match", nullptr},
          {"greedy_agreement", nullptr},
          {"kl_first_token", nullptr},
          {"kl_mean", nullptr},
          {"kv_reuse_rate", score.reused_entries.value()},
          {"agent_turn_reuse", score.reused_turns.value()},
          {"ttft_ms", score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0},
          {"output_tokens", score.output_tokens},
          {"failed_runs", score.failed},
          {"wall_ms", score.wall_ms}};
}

std::string text_of(const Score& score) {
  std::string out = fmt::format("{}: {} of {} right ({:.1f} %)\n", score.method, score.right.part, score.right.whole, 100 * score.right.value());
  for (const auto& [agent, share] : score.right_by_agent) out += fmt::format("  {}  {:5.1f} %\n", padded(agent, 20), 100 * share.value());
  if (score.failed > 0) out += fmt::format("  {} runs failed\n", score.failed);
  out += fmt::format("  {:.1f} % of the KV reused, first token after {} on average, {} tokens in {}\n", 100 * score.reused_entries.value(),
                     duration(score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0), grouped(score.output_tokens),
                     duration(score.wall_ms));
  return out;
}

int eval(const Arguments& arguments) {
  if (!arguments.workflow.relay.empty()) throw Failure(kUsage, "--relay: eval takes the methods to measure from --methods");
  for (const auto& method : arguments.methods) {
    if (method != "full") throw Failure(kUsage, fmt::format("--methods {}: this version measures: full", method));
  }
  const auto questions = read_dataset(arguments.dataset, arguments.limit);
  std::vector<Score> scores;
  std::string workflow_name;
  std::size_t agents = 0;
  const Engine engine = Engine::open(arguments.engine.options(arguments.workflow.default_model(), arguments.quiet));
  for (const auto& method : arguments.methods) {
    WorkflowArguments changed = arguments.workflow;
    changed.relay = method;
    const Workflow workflow = changed.load();
    workflow_name = workflow.name();
    agents = workflow.agents().size();
    engine.prepare(workflow);
    scores.push_back(measure(arguments, engine, workflow, method, questions));
  }
  if (arguments.json) {
    Json methods = Json::array();
    for (const auto& score : scores) methods.push_back(json_of(score, agents));
    const Json all = {{"schema", 1},
                      {"workflow", workflow_name},
                      {"dataset", arguments.dataset},
                      {"questions", questions.size()},
                      {"noise_floor", {{"kl_first_token", nullptr}, {"kl_mean", nullptr}}},
                      {"methods", std::move(methods)}};
    result(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    for (const auto& score : scores) result(text_of(score));
  }
  return interrupted().stop_requested() ? kInterrupted : kOk;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("eval", "Run a workflow over a dataset and count the right answers");
  auto arguments = std::make_shared<Arguments>();
  arguments->workflow.add_to(*verb);
  arguments->engine.add_to(*verb);
  verb->add_option("--dataset", arguments->dataset, "Questions, one JSON object a line: id, inputs, answer")->required()->type_name("FILE.jsonl");
  verb->add_option("--limit", arguments->limit, "Only the first N questions")->type_name("N");
  verb->add_option("--methods", arguments->methods, "Relay methods to measure; this version: full")->delimiter(',')->type_name("A,B");
  verb->add_option("--jobs", arguments->jobs, "Questions at the same time")->type_name("N")->check(CLI::Range(1, 256))->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of the sampling")->type_name("N");
  verb->add_option("--timeout", arguments->timeout, "For each question")->type_name("60s");
  verb->add_flag("--json", arguments->json, "As one JSON object");
  auto* quiet = verb->add_flag("-q,--quiet", arguments->quiet, "No progress");
  verb->add_flag("-v,--verbose", arguments->verbose, "Each question, what the agents said, and whether it was right")->excludes(quiet);
  verb->footer(
      "The answer is what output.pattern of the deciding (or last) agent finds; without a pattern, the output named\n"
      "answer. Numbers are compared as numbers. A line of the dataset:\n"
      "  {\"id\": \"q1\", \"inputs\": {\"user_question\": \"What is 6 x 7?\"}, \"answer\": \"42\"}\n\n"
      "Examples:\n"
      "  baton eval team.yaml --dataset questions.jsonl --limit 5 -v\n"
      "  baton eval team.yaml --dataset questions.jsonl --json > full.json");
  verb->callback([arguments, &action] { action = [arguments] { return eval(*arguments); }; });
}

}  // namespace baton::cli
