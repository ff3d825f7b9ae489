// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/defaults.h"

#include <algorithm>

#include "engine/base/system/machine.h"

namespace baton {
namespace {

constexpr std::int64_t kMinBudget = std::int64_t{16} << 20;  // of KV, however little a container leaves

std::int64_t available_memory() {
  constexpr std::int64_t kUnknown = std::int64_t{8} << 30;
  const std::int64_t bytes = machine_memory().available_bytes;
  return bytes > 0 ? bytes : kUnknown;
}

}  // namespace

LocalEngineOptions with_defaults(LocalEngineOptions options, const BackendInfo& device) {
  if (options.slowdown <= 0.0) options.slowdown = device.name == "cpu" ? kSlowdownCpu : kSlowdownGpu;
  options.token_by_token |= options.max_draft == 0;
  if (options.max_draft < 0) options.max_draft = device.name == "cpu" ? kMaxDraftCpu : 0;
  if (options.max_prefill_rows <= 0)
    options.max_prefill_rows = device.host_memory ? options.max_step_rows : kPrefillRowsGpu;
  if (options.kv_budget_bytes <= 0)
    options.kv_budget_bytes =
        std::max((device.free_bytes > 0 ? device.free_bytes : available_memory()) / 2, kMinBudget);
  if (options.segment_budget_bytes <= 0) options.segment_budget_bytes = options.kv_budget_bytes / 3;
  if (options.host_segment_budget_bytes == 0) options.host_segment_budget_bytes = available_memory() / 4;
  if (device.host_memory || options.host_segment_budget_bytes < 0) options.host_segment_budget_bytes = 0;
  if (options.anchor_budget_bytes <= 0) options.anchor_budget_bytes = options.segment_budget_bytes / 2;
  return options;
}

}  // namespace baton
