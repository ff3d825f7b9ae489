// The layer range of an opened model: read from its profile, or measured.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>

#include "engine/model_profile.h"

namespace baton {

/// Sets the engine's layer range unless it has one: from the model's profile, else from one made with synthetic
/// hand-overs and kept in the user's cache (a run does not write into a model's folder; `profile_model` does). Leaves
/// it unset when stopped. Throws ModelError for a profile that is not one and for a model without a range, EngineError.
void ensure_layer_range(Engine& engine, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop);

}  // namespace baton
