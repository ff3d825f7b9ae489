// SPDX-License-Identifier: Apache-2.0
// A method to measure, as the user writes it: "rectify", "epic:epic_tokens=32",
// "rectify:select.share=0.2;select.suffix=0".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sdk/cli/console/options.h"

namespace baton::cli {

struct EvalMethod {
  std::string text;  // as written
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;  // of `relay`

  /// The method reuses nothing, so that others are compared with it.
  bool is_reference() const;

  /// What the method reuses in a question depends on the questions before it.
  bool remembers_questions() const;

  /// Throws Failure naming what is wrong.
  static EvalMethod parse(const std::string& text);

  /// The workflow with this method: short segments are reused too, and no prefixes, which other methods leave behind.
  Workflow load(const WorkflowArguments& arguments, const std::string& pool = {}) const;
  /// The workflow with this method and, but for its settings, as `baton run` runs it.
  Workflow load_as_run(const WorkflowArguments& arguments) const;

 private:
  Workflow load_with(WorkflowArguments changed, const WorkflowArguments& arguments) const;
};

}  // namespace baton::cli
