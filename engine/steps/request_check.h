// SPDX-License-Identifier: Apache-2.0
// What an engine refuses before it takes anything in. Each throws EngineError with what is wrong and what was expected.
#pragma once

#include "engine/model/model.h"
#include "engine/request.h"

namespace baton {

void check(const GenerationRequest& request, const Model& model);
void check(const EarlyPrompt& prompt, const Model& model);
void check(const std::vector<EarlyPart>& parts, const Model& model);

}  // namespace baton
