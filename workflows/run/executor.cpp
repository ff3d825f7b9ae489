// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/executor.h"

#include <fmt/format.h>

#include <stdexcept>

#include "workflows/run/executor_loop.h"

namespace baton {

RunRecord run_plan(const RunRequest& request) {
  if (!request.plan || !request.plan->spec) throw std::invalid_argument("run_plan: no plan");
  const bool over =
      request.stop.stop_requested() || (request.due && Clock::now() >= *request.due) || !request.unready.empty();
  for (const PlannedTurn& turn : request.plan->turns) {
    if (over) break;  // no turn starts
    if (!turn.has_prompt()) continue;
    const auto engine = request.engines.find(turn.model);
    if (engine == request.engines.end() || !engine->second)
      throw std::invalid_argument(fmt::format("run_plan: no engine for model '{}'", turn.model));
  }
  return RunLoop(request).run();
}

}  // namespace baton
