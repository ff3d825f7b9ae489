// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/reuse/policy.h"

namespace baton {
namespace {

using Policy = PromptSchedule (*)(const ReuseOptions&, const ScheduleInput&);

constexpr std::pair<std::string_view, Policy> kPolicies[] = {
    {"full", full_schedule},       {"prefix", full_schedule},     {"lockstep", full_schedule},
    {"direct", direct_schedule},   {"epic", epic_schedule},       {"cacheblend", cacheblend_schedule},
    {"rectify", rectify_schedule}, {"anchors", anchors_schedule}, {"droidspeak", droidspeak_schedule},
};

}  // namespace

const std::vector<std::string>& reuse_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, policy] : kPolicies) all.emplace_back(name);
    return all;
  }();
  return names;
}

bool takes_segments(const ReuseOptions& reuse) {
  if (is_tolerant(reuse)) return true;
  const auto found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                  [&](const auto& policy) { return policy.first == reuse.method; });
  return found != std::end(kPolicies) && found->second != full_schedule;
}

SparseLayers sparse_layers_of(const PromptSchedule& schedule, std::int32_t layers) {
  if (!schedule.detections.empty()) {
    const Detection& detection = schedule.detections.front();
    return {detection.layer + 1, detection.leave};
  }
  SparseLayers sparse{layers, 0};
  for (const ScheduledRow& row : schedule.rows) {
    if (row.path.enter == 0 && row.path.leave == layers) continue;
    sparse.begin = std::min(sparse.begin, row.path.enter);
    sparse.end = std::max(sparse.end, row.path.leave);
  }
  if (sparse.end == 0) sparse.end = layers;
  return sparse;
}

PromptSchedule make_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const auto* found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                   [&](const auto& policy) { return policy.first == options.method; });
  if (found == std::end(kPolicies))
    throw std::invalid_argument(fmt::format("reuse method '{}' is not known", options.method));
  if (options.method == "rectify" && !options.range.valid(input.layers)) {
    throw std::invalid_argument(fmt::format("rectify: layers {} < {} < {} of {} make no range", options.range.start,
                                            options.range.detect, options.range.end, input.layers));
  }
  if (options.method == "droidspeak" && !options.range.is_group(input.layers)) {
    throw std::invalid_argument(fmt::format("droidspeak: layers {} to {} of {} make no group", options.range.start,
                                            options.range.end, input.layers));
  }
  return (is_tolerant(options) ? anchors_schedule : found->second)(options, input);
}

}  // namespace baton
