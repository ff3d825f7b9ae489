// SPDX-License-Identifier: Apache-2.0
// baton schema: the JSON Schema of workflow files, for editors, or the reference of all keys, for readers.
#include <baton/workflow.h>

#include <memory>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {

void add_schema(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("schema", "Print the JSON Schema of workflow files");
  auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "Print the reference of all keys and error codes in place of the schema");
  verb->footer(
      "Editors with a YAML language server use it for completion and checks:\n\n"
      "  baton schema > baton.v1.schema.json\n\n"
      "and as the first line of a workflow:\n\n"
      "  # yaml-language-server: $schema=./baton.v1.schema.json");
  verb->callback([markdown, &action] {
    action = [markdown] {
      result(*markdown ? workflow_reference() : workflow_schema());
      return kOk;
    };
  });
}

}  // namespace baton::cli
