// SPDX-License-Identifier: Apache-2.0
// auto and verified: texts are rectified, or, if the options ask for exact KV, computed.
#include "engine/reuse/schedule.h"

namespace baton {

/// auto: texts are rectified, or, where the options ask for exact KV, computed. What was computed ahead is in place.
PromptSchedule auto_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  return takes_segments(options) ? rectify_schedule(options, input) : full_schedule(options, input);
}

}  // namespace baton
