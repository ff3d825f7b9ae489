// SPDX-License-Identifier: Apache-2.0
// baton report: a recorded run, or two next to each other, as one HTML page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

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
  std::vector<std::string> folders;  // one or two
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
  const std::vector<std::string>& folders = arguments.folders;
  std::string command = "baton report";
  for (const std::string& folder : folders) command += " " + quoted(folder);
  if (!arguments.output.empty()) command += " --output " + quoted(arguments.output);
  const Report first = read_report(folders[0]);
  const std::string page =
      (folders.size() == 1 ? report_page(first, command)
                           : comparison_page(first, read_report(folders[1]), {folders[0], folders[1]}, command))
          .str();
  if (interrupted().stop_requested()) throw Failure(kInterrupted, "interrupted; nothing was written");
  if (arguments.output == "-") {
    result(page);
    return kOk;
  }
  fs::path path = arguments.output;
  if (path.empty()) path = fs::path(folders.back()) / (folders.size() == 1 ? "report.html" : "comparison.html");
  write_page(path, page);
  result(path.string() + "\n");
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("report", "Make an HTML page of a recorded run, or of two next to each other");
  auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("folders", arguments->folders, "Folder that 'baton run --record DIR' wrote; two are compared")
      ->required()
      ->expected(1, 2)
      ->type_name("DIR");
  verb->add_option(
          "-o,--output", arguments->output,
          "File to write the page to; without it DIR/report.html, of two runs comparison.html in the second; -: stdout")
      ->type_name("FILE");
  verb->footer(
      "Prints the page's name. The page shows the inputs and outputs, the team, where the time went, what each\n"
      "placeholder's KV was made of and why, and each prompt, call and answer. It needs no other file and no network. "
      "Of\n"
      "two runs it shows what differs. An earlier page is overwritten, any other file never.\n\n"
      "Examples:\n"
      "  baton run team.yaml -i user_question=@q.txt --record runs/1 && baton report runs/1\n"
      "  baton report runs/full runs/auto\n"
      "  baton report runs/1 --output - > page.html");
  verb->callback([arguments, &action] { action = [arguments] { return report(*arguments); }; });
}

}  // namespace baton::cli
