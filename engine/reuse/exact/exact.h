// SPDX-License-Identifier: Apache-2.0
// The exact methods: full, prefix and lockstep, which is also called `exact`. method.h declares them.
#pragma once

#include "engine/reuse/schedule.h"

namespace baton {

/// Every position behind the prefix runs through all layers.
PromptSchedule full_schedule(const ScheduleInput& input);

}  // namespace baton
