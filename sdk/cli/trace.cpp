// SPDX-License-Identifier: Apache-2.0
// baton trace: a recorded run as a trace, for a viewer or a collector.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"
#include "sdk/report/data.h"
#include "sdk/trace/spans.h"
#include "sdk/trace/trace_target.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct TraceArguments {
  std::string folder;
  std::string to;
};

int trace(const TraceArguments& arguments) {
  const std::string to =
      arguments.to.empty() ? (fs::path(arguments.folder) / "trace.perfetto.json").string() : arguments.to;
  const Report report = read_report(arguments.folder);
  const bool has_times = std::any_of(report.marks.begin(), report.marks.end(),
                                     [](const TurnMarks& turn) { return turn.over_ms.has_value(); });
  if (!has_times && !report.no_times.empty())
    throw Failure(kInvalidFile, fmt::format("{}: there is no trace: {}", arguments.folder, report.no_times));
  const TraceTarget target(to);
  if (const std::string problem = target.write(spans_of(report.run, report.marks)); !problem.empty())
    throw Failure(kRunFailed, "the trace could not be written: " + problem);
  if (target.is_file()) result(to + "\n");
  return kOk;
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("trace", "Make a trace of a recorded run, for a viewer or a collector");
  auto arguments = std::make_shared<TraceArguments>();
  verb->add_option("folder", arguments->folder, "Folder that 'baton run --record DIR' wrote")
      ->required()
      ->type_name("DIR");
  verb->add_option("--to", arguments->to, "Where the trace goes; without it DIR/trace.perfetto.json")
      ->type_name("otlp|URL|FILE");
  verb->footer(
      "A trace shows when each agent, model and tool worked. Open FILE.perfetto.json with ui.perfetto.dev or\n"
      "chrome://tracing. An address is that of a collector of OpenTelemetry, as Jaeger is one; otlp is the one that\n"
      "OTEL_EXPORTER_OTLP_ENDPOINT names. Any other file gets a line of OTLP. No prompt and no answer is in a "
      "trace.\n\n"
      "Examples:\n"
      "  baton run team.yaml -i user_question=@q.txt --record runs/1 && baton trace runs/1\n"
      "  baton trace runs/1 --to http://localhost:4318");
  verb->callback([arguments, &action] { action = [arguments] { return trace(*arguments); }; });
}

}  // namespace baton::cli
