// SPDX-License-Identifier: Apache-2.0
// Linux tells it in /proc; other systems of this kind have none, and only say how many cores there are.
#include "engine/base/system/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "engine/base/system/posix/control_groups.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// The microseconds of processor time in each period of a group; no limit unless both are above 0.
struct Quota {
  std::int64_t time = 0, period = 0;
};

Quota quota_in(const fs::path& folder, GroupVersion version) {
  Quota quota;
  if (version == GroupVersion::one) {  // time is -1 without a limit
    return {number_in(folder / "cpu.cfs_quota_us").value_or(-1), number_in(folder / "cpu.cfs_period_us").value_or(0)};
  }
  std::ifstream file(folder / "cpu.max");  // "150000 100000", "max 100000"
  return file >> quota.time >> quota.period ? quota : Quota{};
}

int scheduled_cores() {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int usable_cores(const fs::path& root) {
  std::int64_t cores = scheduled_cores();
  visit_groups(root, "cpu", [&](const fs::path& folder, GroupVersion version) {
    const Quota quota = quota_in(folder, version);
    if (quota.time > 0 && quota.period > 0)
      cores = std::min(cores, std::max<std::int64_t>(quota.time / quota.period, 1));
  });
  return static_cast<int>(cores);
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::string vector_instructions() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::string found;
    for (const std::string flag :
         {"avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "bf16", "sve"}) {
      if ((line + " ").find(" " + flag + " ") != std::string::npos) found += (found.empty() ? "" : " ") + flag;
    }
    return found;
  }
  return {};
}

}  // namespace baton
