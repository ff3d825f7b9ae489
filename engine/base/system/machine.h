// SPDX-License-Identifier: Apache-2.0
// What the machine has, as far as the system says it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace baton {

/// Those that this process may use, at least 1: where control groups, such as a container's, limit its processor time,
/// as many as can run all the time. `root` stands for "/", on systems that say it in files.
int usable_cores(const std::filesystem::path& root = "/");

/// "CPU" where the system names none.
std::string processor_name();

/// The vector instructions that the engine has kernels for, as "avx2 fma"; empty: none, or the system does not say.
std::string vector_instructions();

struct MachineMemory {
  std::int64_t available_bytes = 0;  // for new allocations; 0: unknown
  std::int64_t total_bytes = 0;      // 0: unknown
};
/// The smaller of what the machine has and what the control groups of this process, such as a container's, with those
/// around them, allow (versions 2 and 1). Files that were read and can be dropped again count as available. `root`
/// stands for "/", on systems that say it in files.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

}  // namespace baton
