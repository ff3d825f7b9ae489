// SPDX-License-Identifier: Apache-2.0
// Method droidspeak: a group of layers is recomputed for all reused tokens, from the hidden states that their author
// stored at the group's first layer. The other layers keep the author's keys and values. The author may be another
// model (DroidSpeak, docs/methods.md). With a time to keep, the size of the group follows from it.
#pragma once

#include "engine/reuse/decision.h"
#include "engine/reuse/schedule.h"

namespace baton {

struct DroidspeakOptions {
  /// A prompt recomputes the largest group with which it is expected to be complete so many milliseconds after its
  /// submission (group_in_time). 0: the group is that of the range.
  double ttft_ms = 0.0;
};

const Method& droidspeak_method();

/// Returns the group for a prompt: the largest of `group` and those that end in options.larger_ends with which it is
/// expected to be complete within the time that is left; `group` if none is, or if the time of a row is unknown
/// (DroidSpeak, Appendix B).
LayerRange group_in_time(const ReuseOptions& options, const LayerRange& group, const ScheduleInput& input);

}  // namespace baton
