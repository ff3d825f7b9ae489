// SPDX-License-Identifier: Apache-2.0
// baton run: runs a workflow, and shows it. baton resume: goes on with a recorded run that was stopped or killed, from
// its journal.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <baton/baton.h>
#include <baton/turns.h>

#include "sdk/cli/journal.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"
#include "sdk/record/record_folder.h"
#include "sdk/report/data.h"
#include "sdk/trace/spans.h"
#include "sdk/trace/trace_target.h"

namespace baton::cli {

struct RunArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  EngineArguments engine;
  std::vector<std::string> answers;  // "step=text"
  std::optional<std::uint64_t> seed;
  std::string local_time;  // of a run that is resumed
  std::string timeout;
  bool json = false;
  std::string events;
  std::string record;
  std::optional<TraceTarget> trace;
  bool quiet = false;
  bool verbose = false;
  std::map<std::string, std::string> given;  // resume: values in place of `inputs`
  std::vector<AgentFinished> finished;       // resume: turns that are not run again
  std::vector<EarlierCall> calls;            // resume: what calls of other turns came to
  bool resumes = false;                      // the folder of the record may exist, and its journal does
};

namespace {

class QuietView : public View {
  void on_event(const Event&) override {}
};

bool asks(const Workflow& workflow) {
  const std::vector<TurnInfo> turns = workflow.turns();
  return std::any_of(turns.begin(), turns.end(), [](const TurnInfo& turn) { return turn.asks; });
}

std::unique_ptr<View> make_view(const RunArguments& arguments, const Workflow& workflow) {
  // Events on the terminal are themselves the view.
  if (arguments.quiet || (!arguments.events.empty() && stdout_is_terminal())) return std::make_unique<QuietView>();
  if (can_redraw() && !(can_ask() && asks(workflow))) return make_live_view(workflow);
  return make_plain_view(arguments.verbose);
}

std::string slots_text(const RunRecord& record) {
  std::string out;
  for (const auto& agent : record.agents) {
    for (const auto& slot : agent.slots) {
      out += fmt::format("{}: {}: {} tokens, {}, {} reused, {} ahead", turn_name(agent.agent, agent.round), slot.name,
                         slot.tokens, slot.method, slot.reused_tokens, slot.ahead_tokens);
      out += slot.reason.empty() ? "\n" : fmt::format(" ({})\n", printable(slot.reason, Lines::fold));
    }
  }
  return out;
}

void print_results(const NamedTexts& results) {
  for (const auto& [name, text] : results) {
    result(results.size() > 1 ? name + ": " + text : text);
    if (text.empty() || text.back() != '\n') result("\n");
  }
}

void report(const RunArguments& arguments, const RunRecord& record) {
  const bool json = arguments.json || !arguments.events.empty();
  const bool for_a_person = !arguments.quiet && stderr_is_terminal() && !(json && stdout_is_terminal());
  const bool below = for_a_person && !json && stdout_is_terminal();  // the results stand on the same terminal
  const NamedTexts results = results_of(record);
  if (for_a_person) note(answers_text(record, below ? results : NamedTexts()) + "\n");
  if (arguments.json) {
    result(record.to_json() + "\n");
  } else if (arguments.events.empty()) {
    if (below) note(styled(Style::bold, "result\n"));
    print_results(results);
  }
  check_stdout();
  if (arguments.quiet) return;
  if (for_a_person) note("\n");
  if (arguments.verbose) note(slots_text(record));
  note(summary_table(record));
}

/// What a run waits for, and how to go on with it.
std::string how_to_answer(const std::map<std::string, Asked>& asked, const RunArguments& arguments) {
  std::string text, answers;
  for (const auto& [turn, one] : asked) {
    text += "  " + question_text(one) + "\n";
    answers += fmt::format(" --answer {}=TEXT", turn);
  }
  if (!arguments.record.empty())
    return text + fmt::format("Answer with: baton resume {}{}\n", arguments.record, answers);
  return text +
         fmt::format("Run it again with{}, or with --record DIR to go on later without computing it again.\n", answers);
}

/// A collector that is not there takes nothing from the result; a file that was asked for is missed.
void write_trace(const TraceTarget& target, const RunTrace& trace, std::optional<Failure>& unwritten) {
  const std::string problem = target.write(trace);
  if (problem.empty()) return;
  if (target.is_file() && !unwritten) {
    unwritten = Failure(kRunFailed, "the trace could not be written: " + problem);
  } else {
    note(warning_line("the trace is lost: " + problem));
  }
}

/// Says how to give the inputs that are missing.
Run start(const Engine& engine, const Workflow& workflow, const RunOptions& options, const std::string& file) {
  try {
    return engine.start(workflow, options);
  } catch (const InputError& error) {
    if (error.missing.empty()) throw;
    throw Failure(kUsage, how_to_give(workflow, error.missing, "baton run " + file));
  }
}

}  // namespace

/// Returns the exit code.
int run(const RunArguments& arguments) {
  if (arguments.json && !arguments.events.empty()) throw Failure(kUsage, "--json and --events exclude each other");
  RunOptions options;
  if (!arguments.timeout.empty()) options.timeout = duration_of_option(arguments.timeout, "--timeout");
  options.seed = arguments.seed;
  options.local_time = arguments.local_time;
  options.inputs = arguments.resumes ? arguments.given : arguments.inputs.values();
  options.stop = interrupted();
  options.finished = arguments.finished;
  options.calls = arguments.calls;
  options.answers = answers_of(arguments.answers);
  options.record = arguments.record;
  options.record_resumed = arguments.resumes;
  if (can_ask()) options.on_ask = ask_person;

  const Workflow workflow = arguments.workflow.load();
  const Engine engine = Engine::open(arguments.engine.options(arguments.workflow.default_model(), arguments.quiet));

  const auto view = make_view(arguments, workflow);
  const LastWords words([&view] { view->close(); });
  std::atomic<bool> recording = false;  // the folder is being written, which the program's end waits for
  const LastWords whole([&recording] {
    for (int tries = 0; tries < 200 && recording; ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  std::chrono::steady_clock::time_point begin;
  RunMarks marks;
  std::map<std::string, Asked> asked;  // by turn, without an answer
  options.on_event = [&](const Event& event) {
    if (std::holds_alternative<RunFinished>(event)) recording = !arguments.record.empty();
    if (std::holds_alternative<RunStarted>(event)) begin = std::chrono::steady_clock::now();
    // Before it is shown: drawing takes its time.
    const std::chrono::duration<double, std::milli> since = std::chrono::steady_clock::now() - begin;
    const std::string line = arguments.events.empty() ? "" : to_json(event, since.count()) + "\n";
    if (arguments.trace) marks.add(event, since.count());
    view->on_event(event);
    if (const auto* one = std::get_if<Asked>(&event)) asked[one->turn] = *one;
    if (const auto* one = std::get_if<ToolCalled>(&event); one != nullptr && one->tool == "ask") asked.erase(one->turn);
    if (const auto* one = std::get_if<CallDecided>(&event)) asked.erase(fmt::format("{}/{}", one->turn, one->call));
    if (!arguments.events.empty()) {
      result(line);
      check_stdout();
    }
  };
  const RunRecord record = start(engine, workflow, options, arguments.workflow.file).get();
  recording = false;
  view->close();

  std::optional<Failure> unwritten;  // the folder: its loss takes nothing from the result
  if (!record.record_error.empty())
    unwritten.emplace(kRunFailed, fmt::format("--record {}: {}", arguments.record, record.record_error));
  report(arguments, record);
  if (record.state != RunState::ok) {
    note(styled(Style::red, "baton: ") + "the run " +
         (record.state == RunState::timeout  ? "ran out of time"
          : record.state == RunState::failed ? "failed"
                                             : fmt::format("was {}", name_of(record.state))) +
         (record.error.empty() ? "" : ": " + printable(record.error, Lines::keep)) + "\n");
    if (record.state == RunState::suspended) note(how_to_answer(asked, arguments));
  }
  if (arguments.trace) write_trace(*arguments.trace, spans_of(record, marks.turns(record)), unwritten);
  if (unwritten) throw Failure(*unwritten);
  // What is measured of the last turn is nearly complete, as a rule; nobody notices the wait.
  constexpr std::chrono::milliseconds kNotice(250);
  if (record.state == RunState::ok) engine.finish_measuring(kNotice, interrupted());
  return exit_code_of(record);
}

void add_run(CommandLine& line) {
  auto* verb = line.add_verb("run", "Run a workflow");
  auto arguments = std::make_shared<RunArguments>();
  arguments->workflow.add_to(*verb);
  arguments->inputs.add_to(*verb);
  arguments->engine.add_to(*verb);
  add_answers(*verb, arguments->answers);
  verb->add_option("--seed", arguments->seed, "Seed of the sampling, in place of the file's")->type_name("N");
  verb->add_option("--timeout", arguments->timeout, "End the run after this time; the record keeps what was done")
      ->type_name("60s");
  verb->add_flag("--json", arguments->json, "Print the whole record as one JSON object");
  verb->add_option("--events", arguments->events, "Print each event as it happens, one JSON object per line")
      ->one_of({"ndjson"});
  verb->add_option("--record", arguments->record, "Write run.json, events.ndjson and the prompts into a new folder")
      ->type_name("DIR");
  auto trace = std::make_shared<std::string>();
  verb->add_option("--trace", *trace,
                   "Send a trace to a collector of OpenTelemetry, or write it: FILE.perfetto.json for ui.perfetto.dev")
      ->type_name("otlp|URL|FILE");
  auto* quiet = verb->add_flag("-q,--quiet", arguments->quiet, "Print only results and errors");
  verb->add_flag("-v,--verbose", arguments->verbose, "Also show how each placeholder was handed over")->excludes(quiet);
  verb->footer(
      "Prints the workflow's outputs. On a terminal, stderr shows each agent as it works; Ctrl-C stops the run\n"
      "and keeps its results so far; a second Ctrl-C ends the program at once. A recorded run that was stopped or\n"
      "killed goes on with 'baton resume DIR'.\n\n"
      "Examples:\n"
      "  baton run team.yaml --input user_question=\"What is 6 x 7?\"\n"
      "  baton run team.yaml --input user_question=@question.txt --model models/qwen3-0.6b\n"
      "  baton run team.yaml --input-file inputs.json --json -q | jq .outputs\n"
      "  baton run team.yaml -i user_question=@q.txt --relay full --set defaults.max_tokens=64 --record runs/1\n"
      "  baton run team.yaml -i user_question=@q.txt --trace run.perfetto.json");
  verb->run([arguments, trace] {
    if (!trace->empty()) arguments->trace.emplace(*trace);
    return run(*arguments);
  });
}

// baton resume: goes on with a recorded run that was stopped or killed, from its journal.

namespace {

namespace fs = std::filesystem;

struct ResumeArguments {
  std::string folder;
  EngineArguments engine;
  std::string timeout;
  std::vector<std::string> answers;
  bool json = false;
  std::string events;
  std::string trace;
  bool quiet = false;
  bool verbose = false;
};

int resume(const ResumeArguments& arguments) {
  const fs::path folder = fs::absolute(arguments.folder);
  JournalContent read = read_journal(folder);
  std::error_code error;
  if (!fs::exists(journal_beside(folder), error) && read_report(folder).run.state == RunState::ok) {
    note("the run has ended well; there is nothing to resume\n");
    return kOk;
  }
  std::optional<TraceTarget> trace;  // before the folder changes
  if (!arguments.trace.empty()) trace.emplace(arguments.trace);
  auto [journal, engine, workflow] = restart(std::move(read), arguments.engine);
  const std::vector<TurnInfo> turns = workflow.turns();
  std::erase_if(journal.finished, [&](const AgentFinished& one) {  // what ended the run is run again
    return one.record.state == TurnState::failed && !turns[static_cast<std::size_t>(one.turn)].may_fail;
  });
  RunArguments run_arguments;
  run_arguments.workflow = journal.start.workflow;
  run_arguments.given = journal.start.inputs;
  run_arguments.engine = engine;
  run_arguments.seed = journal.start.seed;
  run_arguments.local_time = journal.start.local_time;
  run_arguments.timeout = arguments.timeout;
  run_arguments.answers = arguments.answers;
  run_arguments.json = arguments.json;
  run_arguments.events = arguments.events;
  run_arguments.record = folder.string();
  run_arguments.trace = std::move(trace);
  run_arguments.quiet = arguments.quiet;
  run_arguments.verbose = arguments.verbose;
  std::erase_if(journal.calls, [&](const EarlierCall& call) {
    return std::any_of(journal.finished.begin(), journal.finished.end(),
                       [&](const AgentFinished& one) { return one.record.turn == call.turn; });
  });
  run_arguments.finished = std::move(journal.finished);
  run_arguments.calls = std::move(journal.calls);
  run_arguments.resumes = true;
  if (!arguments.quiet)
    note(fmt::format("{} turn{} of the run {} done\n", run_arguments.finished.size(),
                     run_arguments.finished.size() == 1 ? "" : "s", run_arguments.finished.size() == 1 ? "is" : "are"));
  return run(run_arguments);
}

}  // namespace

void add_resume(CommandLine& line) {
  auto* verb = line.add_verb("resume", "Go on with a recorded run that was stopped, killed or suspended");
  auto arguments = std::make_shared<ResumeArguments>();
  verb->add_option("DIR", arguments->folder, "The folder that 'baton run --record DIR' wrote, or was to write")
      ->required();
  arguments->engine.add_to(*verb);
  verb->add_option("--timeout", arguments->timeout, "End the run after this time")->type_name("60s");
  Option* quiet = verb->add_flag("-q,--quiet", arguments->quiet, "Print only results and errors");
  verb->add_flag("-v,--verbose", arguments->verbose, "Show more of each turn")->excludes(quiet);
  add_answers(*verb, arguments->answers);
  verb->add_flag("--json", arguments->json, "Print the whole record as one JSON object");
  verb->add_option("--events", arguments->events, "Print each event as it happens, one JSON object per line")
      ->one_of({"ndjson"});
  verb->add_option("--trace", arguments->trace, "As for 'baton run'; turns that had ended are not in it")
      ->type_name("otlp|URL|FILE");
  verb->footer(
      "Turns that had ended are taken from the run's journal and not computed again; the others run as they would "
      "have\n"
      "run. The workflow, its inputs, models and seed are those of the run. The record is then complete.\n\n"
      "Example:\n"
      "  baton run team.yaml --input-file inputs.json --record runs/1     killed after an hour\n"
      "  baton resume runs/1");
  verb->run([arguments] { return resume(*arguments); });
}

}  // namespace baton::cli
