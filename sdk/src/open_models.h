// SPDX-License-Identifier: Apache-2.0
// The opened models of an engine, for other parts of the library.
#pragma once

#include <memory>
#include <vector>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

/// The engines that the workflow's turns run on, opened if need be, each once. Throws ResourceError.
std::vector<std::shared_ptr<LocalEngine>> open_models(const Engine& engine, const Workflow& workflow);

}  // namespace baton::inline v1
