// SPDX-License-Identifier: Apache-2.0
// What of each prompt can be computed ahead, and when: the first moment at which all before a placeholder is known.
#pragma once

#include <vector>

#include "workflows/plan/plan.h"

namespace baton {

/// Fills in method and reason of every slot for the method lockstep. `turns`: a topological order.
void forecast_ahead(std::vector<PlannedTurn>& turns);

}  // namespace baton
