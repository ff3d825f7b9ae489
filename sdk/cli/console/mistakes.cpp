// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/mistakes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {

std::set<std::string> note_mistakes(const WorkflowError& error) {
  note(printable(error.what(), Lines::keep) + "\n");
  std::set<std::string> codes;
  for (const Diagnostic& item : error.items) codes.insert(item.code);
  return codes;
}

void note_explain(const std::set<std::string>& codes) {
  if (codes.empty() || !stderr_is_terminal()) return;
  note(styled(Style::dim, fmt::format("More about it: baton explain {}", fmt::join(codes, " "))) + "\n");
}

}  // namespace baton::cli
