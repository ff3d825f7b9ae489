// SPDX-License-Identifier: Apache-2.0
// From a checked spec to the turns of a plan: topology, visibility, prompts with their loops written out.
#pragma once

#include <vector>

#include "workflows/format/output_grammar.h"
#include "workflows/plan/plan.h"

namespace baton {

/// All turns of all rounds and the decision. With errors the result is of no use.
std::vector<PlannedTurn> build_turns(const WorkflowSpec& spec, OutputGrammars& grammars, Diagnostics& diagnostics);

}  // namespace baton
