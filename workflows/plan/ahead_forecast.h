// SPDX-License-Identifier: Apache-2.0
// What of each prompt can be computed ahead, and when: the first moment at which all before a placeholder is known.
#pragma once

#include <functional>
#include <vector>

#include "workflows/plan/plan.h"

namespace baton {

/// Fills in method and reason of every slot for the method lockstep, in the turns of which `ahead` is true. `turns`: a
/// topological order.
void forecast_ahead(std::vector<PlannedTurn>& turns, const std::function<bool(const PlannedTurn& turn)>& ahead);

}  // namespace baton
