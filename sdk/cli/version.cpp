// SPDX-License-Identifier: Apache-2.0
// baton version: what exactly is running.
#include <fmt/format.h>

#include <baton/version.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {

void add_version(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("version", "Print the version and how it was built");
  verb->callback([&action] {
    action = [] {
      result(fmt::format("baton {}\nworkflow files: version 1\ncompiler: {}\n", version(), __VERSION__));
      return kOk;
    };
  });
}

}  // namespace baton::cli
