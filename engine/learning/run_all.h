// SPDX-License-Identifier: Apache-2.0
// Many requests as one call that waits: for measurements that run on top of an engine.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "engine/engine.h"

namespace baton {

/// What is under way, 0 to 1, on the calling thread: finished requests, and what the others have decoded.
using BatchProgress = std::function<void(double share)>;

/// Runs the requests to their ends, in shared steps; the results are in their order. Empty when it was stopped. The
/// calling thread waits, whatever happens, until the engine is done with all of them; it must not be the engine's.
/// A request's own on_finished is called too, on the engine's thread, and may throw; its on_token is replaced.
/// Throws EngineError when the engine refuses one or one fails, and what `progress` throws.
std::optional<std::vector<GenerationResult>> run_all(InferenceEngine& engine, std::vector<GenerationRequest> requests,
                                                     const std::stop_token& stop, const BatchProgress& progress = {});

}  // namespace baton
