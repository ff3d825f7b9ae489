// SPDX-License-Identifier: Apache-2.0
// Validation of requests and early prompts at the engine's border. Each function throws EngineError that says what was
// found and what was expected.
#pragma once

#include "engine/model/model.h"
#include "engine/request.h"

namespace baton {

void check(const GenerationRequest& request, const Model& model);
void check(const EarlyPrompt& prompt, const Model& model);
void check(const std::vector<EarlyPart>& parts, const Model& model);

}  // namespace baton
