// SPDX-License-Identifier: Apache-2.0
// baton validate: reads and checks workflow files; loads no model.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include <baton/baton.h>
#include <baton/turns.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/mistakes.h"
#include "sdk/cli/console/options.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

struct ValidateArguments {
  std::vector<std::string> files;
  std::vector<std::string> set;
  bool json = false;
};

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const Diagnostic& item) {
  return {{"file", item.file}, {"line", item.line},       {"column", item.column}, {"length", item.length},
          {"code", item.code}, {"message", item.message}, {"hint", item.hint}};
}

int validate(const ValidateArguments& arguments) {
  WorkflowOptions options{.absent_tools = true};
  for (const auto& setting : arguments.set) options.set.push_back(split_setting(setting));
  OrderedJson list = OrderedJson::array();
  std::set<std::string> codes;
  bool sound = true;
  for (const auto& file : arguments.files) {
    OrderedJson errors = OrderedJson::array(), host_tools = OrderedJson::array();
    try {
      const Workflow workflow = Workflow::load(file, options);
      host_tools = workflow.absent_tools();
      if (!arguments.json) {
        const auto counted = [](std::size_t n, const char* what) {
          return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
        };
        const std::string host = tools_of_host(workflow);
        result(fmt::format("{}: ok: {}, {}{}\n", file, counted(workflow.agents().size(), "agent"),
                           counted(workflow.turns().size(), "turn"),
                           host.empty() ? "" : "; the program that runs it must provide: " + host));
      }
    } catch (const WorkflowError& error) {
      sound = false;
      if (!arguments.json) codes.merge(note_mistakes(error));
      for (const auto& item : error.items) errors.push_back(json_of(item));
    }
    list.push_back(
        {{"file", file}, {"ok", errors.empty()}, {"errors", std::move(errors)}, {"host_tools", std::move(host_tools)}});
  }
  if (arguments.json) result(list.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  note_explain(codes);
  return sound ? kOk : kInvalidFile;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("validate", "Check workflow files; loads no model");
  auto arguments = std::make_shared<ValidateArguments>();
  verb->add_option("files", arguments->files, "Workflow files (YAML)")->required()->type_name("FILE");
  verb->add_option("--set", arguments->set, "Change a setting of the files first")
      ->type_name("A.B=VALUE")
      ->allow_extra_args(false);
  verb->add_flag("--json", arguments->json, "Print all errors as JSON on standard output");
  verb->footer(
      "Shows every error in one pass, with its place, a stable code and a suggestion. The exit code is 3 if there are "
      "errors. Tools that the file describes and a program provides are known, and named.\n\n"
      "Examples:\n"
      "  baton validate team.yaml\n"
      "  baton validate workflows/*.yaml --json");
  verb->callback([arguments, &action] { action = [arguments] { return validate(*arguments); }; });
}

}  // namespace baton::cli
