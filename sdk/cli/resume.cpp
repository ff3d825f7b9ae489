// SPDX-License-Identifier: Apache-2.0
// baton resume: goes on with a recorded run that was stopped or killed. baton replay: runs a recorded run again, and
// compares. Both start from the run's journal.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include <baton/turns.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"
#include "sdk/cli/journal.h"
#include "sdk/cli/run.h"
#include "sdk/cli/verbs.h"
#include "sdk/record/record_folder.h"
#include "sdk/report/data.h"

namespace baton::cli {
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

/// Paths in a journal are those of the folder in which the run was started.
void enter(const JournalStart& start) {
  std::error_code error;
  fs::current_path(start.folder, error);
  if (error)
    throw Failure(kUsage,
                  fmt::format("the run was started in {}: {}", printable(start.folder, Lines::fold), error.message()));
}

void must_be_the_same(const JournalStart& start, const Workflow& workflow) {
  if (start.fingerprint == workflow.fingerprint()) return;
  throw Failure(kInvalidFile,
                fmt::format("{} has changed since the run began, or an environment variable that it names; "
                            "a run goes on, and is compared, with the same workflow only",
                            start.workflow.file));
}

/// A recorded run as it is started again, in the folder in which it was started.
struct Restarted {
  JournalContent journal;
  EngineArguments engine;
  Workflow workflow;
};

Restarted restart(JournalContent journal, EngineArguments engine) {
  if (!engine.anchors.empty()) engine.anchors = fs::absolute(engine.anchors).string();  // of this command line
  enter(journal.start);
  Workflow workflow = journal.start.workflow.load();
  must_be_the_same(journal.start, workflow);
  check_journal(journal, workflow.turns());
  return {std::move(journal), std::move(engine), std::move(workflow)};
}

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
  run_arguments.timeout = arguments.timeout;
  run_arguments.answers = arguments.answers;
  run_arguments.json = arguments.json;
  run_arguments.events = arguments.events;
  run_arguments.record = folder.string();
  run_arguments.trace = std::move(trace);
  run_arguments.quiet = arguments.quiet;
  run_arguments.verbose = arguments.verbose;
  run_arguments.finished = std::move(journal.finished);
  run_arguments.resumes = true;
  if (!arguments.quiet)
    note(fmt::format("{} turn{} of the run {} done\n", run_arguments.finished.size(),
                     run_arguments.finished.size() == 1 ? "" : "s", run_arguments.finished.size() == 1 ? "is" : "are"));
  return run(run_arguments);
}

/// Where two answers part, or nothing.
std::string difference(const AgentFinished& recorded, const AgentFinished& found) {
  const auto [a, b] =
      std::mismatch(recorded.tokens.begin(), recorded.tokens.end(), found.tokens.begin(), found.tokens.end());
  if (a != recorded.tokens.end() || b != found.tokens.end())
    return fmt::format("differs from token {} on", a - recorded.tokens.begin() + 1);
  return recorded.record.output == found.record.output ? "" : "has another text";
}

int replay(const ResumeArguments& arguments) {
  const auto [journal, engine_arguments, workflow] =
      restart(read_journal(fs::absolute(arguments.folder)), arguments.engine);
  const Engine engine = Engine::open(engine_arguments.options(journal.start.workflow.default_model(), arguments.quiet));
  const std::vector<TurnInfo> turns = workflow.turns();
  std::map<int, AgentFinished> found;
  RunOptions options;
  if (!arguments.timeout.empty()) options.timeout = parse_duration(arguments.timeout, "--timeout");
  options.inputs = journal.start.inputs;
  options.seed = journal.start.seed;
  options.stop = interrupted();
  for (const AgentFinished& one : journal.finished) {
    const TurnInfo& turn = turns[static_cast<std::size_t>(one.turn)];
    if (turn.asks) options.answers[turn.id] = one.record.output;
  }
  options.on_event = [&](const Event& event) {
    if (const auto* finished = std::get_if<AgentFinished>(&event)) found[finished->turn] = *finished;
  };
  const RunRecord record = engine.run(workflow, options);
  if (record.state == RunState::cancelled) return kInterrupted;
  if (record.state != RunState::ok) note("the run failed: " + printable(record.error, Lines::keep) + "\n");
  std::size_t same = 0;
  for (const AgentFinished& recorded : journal.finished) {
    const std::string name = turn_name(recorded.record.agent, recorded.record.round);
    const auto now = found.find(recorded.turn);
    const std::string wrong = now == found.end() ? "did not run" : difference(recorded, now->second);
    same += wrong.empty() ? 1 : 0;
    if (wrong.empty() && !arguments.verbose) continue;
    result(fmt::format("{}: {}\n", name,
                       wrong.empty() ? fmt::format("the same {} tokens", recorded.tokens.size()) : wrong));
    if (wrong.empty() || now == found.end()) continue;
    result(fmt::format("  recorded: {}\n  now:      {}\n", printable(recorded.record.output, Lines::fold),
                       printable(now->second.record.output, Lines::fold)));
  }
  result(fmt::format("{} of {} turns are the same\n", same, journal.finished.size()));
  if (journal.finished.empty()) throw Failure(kInvalidFile, "the journal has no turns to compare with");
  return same == journal.finished.size() ? kOk : kVerificationFailed;
}

void add_options(CLI::App& verb, ResumeArguments& arguments) {
  verb.add_option("DIR", arguments.folder, "The folder that 'baton run --record DIR' wrote, or was to write")
      ->required();
  arguments.engine.add_to(verb);
  verb.add_option("--timeout", arguments.timeout, "End the run after this time")->type_name("60s");
  auto* quiet = verb.add_flag("-q,--quiet", arguments.quiet, "Print only results and errors");
  verb.add_flag("-v,--verbose", arguments.verbose, "Show more of each turn")->excludes(quiet);
}

}  // namespace

void add_resume(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("resume", "Go on with a recorded run that was stopped, killed or suspended");
  auto arguments = std::make_shared<ResumeArguments>();
  add_options(*verb, *arguments);
  add_answers(*verb, arguments->answers);
  verb->add_flag("--json", arguments->json, "Print the whole record as one JSON object");
  verb->add_option("--events", arguments->events, "Print each event as it happens, one JSON object per line")
      ->check(CLI::IsMember({"ndjson"}));
  verb->add_option("--trace", arguments->trace, "As for 'baton run'; turns that had ended are not in it")
      ->type_name("otlp|URL|FILE");
  verb->footer(
      "Turns that had ended are taken from the run's journal and not computed again; the others run as they would "
      "have\n"
      "run. The workflow, its inputs, models and seed are those of the run. The record is then complete.\n\n"
      "Example:\n"
      "  baton run team.yaml --input-file inputs.json --record runs/1     killed after an hour\n"
      "  baton resume runs/1");
  verb->callback([arguments, &action] { action = [arguments] { return resume(*arguments); }; });
}

void add_replay(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("replay", "Run a recorded run again, and compare it token by token");
  auto arguments = std::make_shared<ResumeArguments>();
  add_options(*verb, *arguments);
  verb->footer(
      "Exit code 6: a turn differs. On the same machine with the same number of threads, and with exact methods on "
      "any,\n"
      "a run of a model is the same token for token; tools and time limits may make it differ.\n\n"
      "Example:\n"
      "  baton replay runs/1 -v");
  verb->callback([arguments, &action] { action = [arguments] { return replay(*arguments); }; });
}

}  // namespace baton::cli
