// SPDX-License-Identifier: Apache-2.0
// A team with a step that asks.
#pragma once

#include <string>

#include "tests/support/folders.h"

namespace baton::test {

inline std::string asking() {
  return R"(version: 1
name: asking
inputs: {question: string}
models: {main: )" +
         (source_folder() / "samples/models/nano").string() + R"(}
defaults: {max_tokens: 4}
agents:
  solver: {prompt: "{{ question }}"}
  approval: {ask: "Right? {{ agent_solver_current }}", output: {enum: ["yes", "no"]}}
  checker: {prompt: "{{ agent_solver_current }} {{ agent_approval_current }}"}
workflow: {topology: chain}
outputs: {answer: "{{ agent_approval_current }} {{ agent_checker_current }}"}
)";
}

}  // namespace baton::test
