// SPDX-License-Identifier: Apache-2.0
// Linux says in files what the machine has, and what its control groups allow.
#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "engine/base/system/machine.h"
#include "engine/base/system/posix/control_groups.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxLimit = std::int64_t{1} << 60;  // version 1 says "none" with a greater number

/// The files of one version of control groups.
struct GroupFiles {
  const char* current;
  std::initializer_list<const char*> limits;
  const char* droppable;  // a line of memory.stat: cached files that were not used lately
};
const GroupFiles kVersion2 = {"memory.current", {"memory.max", "memory.high"}, "inactive_file"};
const GroupFiles kVersion1 = {"memory.usage_in_bytes", {"memory.limit_in_bytes"}, "total_inactive_file"};

/// Of lines "name: number unit" or "name number".
std::int64_t line_of(const fs::path& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t number = 0;
    if (words >> key >> number && key == name) return number;
  }
  return 0;
}

/// Lowers `memory` to what the group in `folder` allows, if it has a limit.
void lower(MachineMemory& memory, const fs::path& folder, const GroupFiles& files) {
  for (const char* name : files.limits) {
    const auto limit = number_in(folder / name), current = number_in(folder / files.current);
    if (!limit || !current || *limit > kMaxLimit) continue;
    const std::int64_t used = *current - std::min(*current, line_of(folder / "memory.stat", files.droppable));
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, std::max(*limit - used, std::int64_t{1}));
  }
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  MachineMemory memory = {1024 * line_of(meminfo, "MemAvailable:"), 1024 * line_of(meminfo, "MemTotal:")};
  MachineMemory lowered = memory;
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  if (memory.available_bytes <= 0) lowered = {kUnknown, kUnknown};
  visit_groups(root, "memory", [&](const fs::path& folder, GroupVersion version) {
    lower(lowered, folder, version == GroupVersion::two ? kVersion2 : kVersion1);
  });
  return lowered.available_bytes == kUnknown ? memory : lowered;
}

}  // namespace baton
