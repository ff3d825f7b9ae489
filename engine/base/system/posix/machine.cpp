// SPDX-License-Identifier: Apache-2.0
// Linux tells it in /proc; other systems of this kind have none, and only say how many cores there are.
#include "engine/base/system/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace baton {

int usable_cores() {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
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
