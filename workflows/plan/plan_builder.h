// SPDX-License-Identifier: Apache-2.0
// The work behind make_plan, with diagnostics for the reader of workflow files, which reports these errors too.
#pragma once

#include <vector>

#include "workflows/plan/plan.h"

namespace baton {

/// All turns of all rounds and the decision. With errors the result is of no use.
std::vector<PlannedTurn> build_turns(const WorkflowSpec& spec, Diagnostics& diagnostics);

}  // namespace baton
