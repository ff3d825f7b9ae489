// SPDX-License-Identifier: Apache-2.0
// Method rectify: options and schedule, which auto and verified use as well (docs/methods.md).
#pragma once

#include <memory>
#include <string>

#include "engine/reuse/method.h"
#include "engine/reuse/method_state.h"
#include "engine/reuse/rectify/selection.h"

namespace baton {

struct RectifyOptions {
  SelectionOptions selection = SelectionOptions::by_change();
  bool correct = true;        // add the learned correction of the text's place, if there is one
  bool paper_layers = false;  // a missing layer range is that of RelayCaching's own profiler
  double reuse = 0.0;  // above 0: the fraction that stays reused, in place of the selection's share or thresholds
};

const Method& rectify_method();

PromptSchedule rectify_schedule(const RectifyOptions& options, const ReuseDecision& decision,
                                const ScheduleInput& input);
bool rectify_reads_attention(const RectifyOptions& options);
double max_rectify_reuse(const RectifyOptions& options, const LayerRange& range, std::int32_t layers);
std::string rectify_problem(const RectifyOptions& options);
/// The keys of all methods that rectify, and how they are read; read_reuse: `reuse`, of those that have that key.
std::vector<MethodKey> rectify_keys();
void read_rectify(GivenKeys& given, RectifyOptions& options);
void read_reuse(GivenKeys& given, RectifyOptions& options);
/// The state of all methods that rectify: learned corrections in backend memory.
std::unique_ptr<MethodState> make_correction_state(Backend& backend, const Model& model, const StateBudget& budget);

}  // namespace baton
