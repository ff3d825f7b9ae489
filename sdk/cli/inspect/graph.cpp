// SPDX-License-Identifier: Apache-2.0
// baton graph: the expanded graph of a workflow.
#include <memory>

#include <baton/baton.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/options.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

struct GraphArguments {
  WorkflowArguments workflow;
  std::string format = "ascii";
};

int graph(const GraphArguments& arguments) {
  std::string text = arguments.workflow.load_to_show().graph(arguments.format);
  if (text.empty() || text.back() != '\n') text += '\n';
  result(text);
  return kOk;
}

}  // namespace

void add_graph(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("graph", "Draw who hands what to whom; loads no model");
  auto arguments = std::make_shared<GraphArguments>();
  arguments->workflow.add_to(*verb);
  verb->add_option("--format", arguments->format, "ascii, mermaid, dot or json")
      ->check(CLI::IsMember({"ascii", "mermaid", "dot", "json"}))
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  baton graph team.yaml\n"
      "  baton graph team.yaml --format dot | dot -Tsvg > team.svg\n"
      "  baton graph team.yaml --set workflow.rounds=3 --format mermaid");
  verb->callback([arguments, &action] { action = [arguments] { return graph(*arguments); }; });
}

}  // namespace baton::cli
