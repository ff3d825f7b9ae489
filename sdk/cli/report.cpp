// SPDX-License-Identifier: Apache-2.0
// baton report: a recorded run as one HTML page, or as a trace for a viewer or a collector.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sdk/cli/verbs.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/report/data.h"
#include "sdk/report/page.h"
#include "sdk/trace/spans.h"
#include "sdk/trace/trace_target.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> folders;
  std::string output;
  std::string trace;  // where the trace goes; empty: DIR/trace.perfetto.json
};

int trace(const ReportArguments& arguments) {
  const std::string& folder = arguments.folders.front();
  // Without a value the option reads as "true".
  const bool named = !arguments.trace.empty() && arguments.trace != "true";
  const std::string to = named ? arguments.trace : (fs::path(folder) / "trace.perfetto.json").string();
  const Report report = read_report(folder);
  const bool has_times = std::any_of(report.marks.begin(), report.marks.end(),
                                     [](const TurnMarks& turn) { return turn.over_ms.has_value(); });
  if (!has_times && !report.no_times.empty())
    throw Failure(kInvalidFile, fmt::format("{}: there is no trace: {}", folder, report.no_times));
  const TraceTarget target(to);
  if (const std::string problem = target.write(spans_of(report.run, report.marks)); !problem.empty())
    throw Failure(kRunFailed, "the trace could not be written: " + problem);
  if (target.is_file()) result(to + "\n");
  return kOk;
}

int report(const ReportArguments& arguments) {
  const std::string& folder = arguments.folders.front();
  std::string command = "baton report " + shell_word(folder);
  if (!arguments.output.empty()) command += " --output " + shell_word(arguments.output);
  const std::string page = report_page(read_report(folder), command).str();
  if (interrupted().stop_requested()) throw Failure(kInterrupted, "interrupted; nothing was written");
  if (arguments.output == "-") {
    result(page);
    return kOk;
  }
  const fs::path path = arguments.output.empty() ? fs::path(folder) / "report.html" : fs::path(arguments.output);
  write_page(path, page);
  result(path.string() + "\n");
  return kOk;
}

}  // namespace

void add_report(CommandLine& line) {
  Verb* verb = line.add_verb("report", "Make an HTML page or a trace of a recorded run");
  auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("folder", arguments->folders, "Folder that 'baton run --record DIR' wrote")
      ->required()
      ->expected(1, 2)
      ->type_name("DIR");
  Option* output = verb->add_option("-o,--output", arguments->output,
                                    "File to write the page to; without it DIR/report.html; -: standard output")
                       ->type_name("FILE");
  Option* traced = verb->add_option("--trace", arguments->trace,
                                    "Make a trace in place of a page, and say where it goes; without a value "
                                    "DIR/trace.perfetto.json")
                       ->type_name("otlp|URL|FILE")
                       ->or_alone("")
                       ->excludes(output);
  verb->moved("--to", "--trace otlp|URL|FILE");
  verb->footer(
      "Prints the page's name. The page shows the inputs and outputs, the team, where the time went, what each\n"
      "placeholder's KV was made of and why, and each prompt, call and answer. It needs no other file and no network.\n"
      "An earlier page is overwritten, any other file never. 'baton compare' makes a page of two runs.\n\n"
      "A trace shows when each agent, model and tool worked. Open FILE.perfetto.json with ui.perfetto.dev or\n"
      "chrome://tracing. A URL is that of an OpenTelemetry collector, such as Jaeger; otlp means the one that\n"
      "OTEL_EXPORTER_OTLP_ENDPOINT names. Any other file gets a line of OTLP. No prompt and no answer is in a "
      "trace.\n\n"
      "Examples:\n"
      "  baton run team.yaml -i user_question=@q.txt --record runs/1 && baton report runs/1\n"
      "  baton report runs/1 --output - > page.html\n"
      "  baton report runs/1 --trace\n"
      "  baton report runs/1 --trace http://localhost:4318");
  verb->run([arguments, traced] {
    const std::vector<std::string>& folders = arguments->folders;
    if (folders.size() > 1) {
      throw Failure(kUsage, fmt::format("a page of two runs is now 'baton compare {} {} --html FILE'",
                                        shell_word(folders[0]), shell_word(folders[1])));
    }
    return traced->count() > 0 ? trace(*arguments) : report(*arguments);
  });
}

}  // namespace baton::cli
