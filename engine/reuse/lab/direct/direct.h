// SPDX-License-Identifier: Apache-2.0
// direct: reused tokens are not run; their keys are only rotated to the new positions.
#pragma once

#include "engine/reuse/decision.h"
#include "engine/reuse/schedule.h"

namespace baton {

const Method& direct_method();

}  // namespace baton
