// SPDX-License-Identifier: Apache-2.0
// baton resume: goes on with a recorded run that was stopped or killed, from its journal.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include <baton/turns.h>

#include "sdk/cli/journal.h"
#include "sdk/cli/run.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/exit_code.h"
#include "sdk/console/interrupt.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"
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
