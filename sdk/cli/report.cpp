// SPDX-License-Identifier: Apache-2.0
// baton report: a recorded run as one HTML page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"
#include "sdk/report/data.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::string folder;
  std::string output;
};

/// As a shell reads it back.
std::string quoted(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+@%:,").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

int report(const ReportArguments& arguments) {
  const Report record = read_report(arguments.folder);
  std::string command = "baton report " + quoted(arguments.folder);
  if (!arguments.output.empty()) command += " --output " + quoted(arguments.output);
  const std::string page = report_page(record, command).str();
  if (interrupted().stop_requested()) throw Failure(kInterrupted, "interrupted; nothing was written");
  if (arguments.output == "-") {
    result(page);
    return kOk;
  }
  const fs::path path =
      arguments.output.empty() ? fs::path(arguments.folder) / "report.html" : fs::path(arguments.output);
  write_page(path, page);
  result(path.string() + "\n");
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("report", "Make an HTML page of a recorded run");
  auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("folder", arguments->folder, "Folder that 'baton run --record DIR' wrote")
      ->required()
      ->type_name("DIR");
  verb->add_option("-o,--output", arguments->output, "File to write the page to; without it DIR/report.html; -: stdout")
      ->type_name("FILE");
  verb->footer(
      "Prints the page's name. The page shows where the time went, what each placeholder's KV was made of and why, "
      "and\n"
      "each prompt and answer. It needs no other file and no network, and runs no script. An earlier page is\n"
      "overwritten, any other file never.\n\n"
      "Examples:\n"
      "  baton run team.yaml -i user_question=@q.txt --record runs/1 && baton report runs/1\n"
      "  baton report runs/1 --output - > page.html");
  verb->callback([arguments, &action] { action = [arguments] { return report(*arguments); }; });
}

}  // namespace baton::cli
