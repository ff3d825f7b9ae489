// SPDX-License-Identifier: Apache-2.0

#include <malloc.h>
#include <windows.h>

#include <algorithm>
#include <array>
#include <bit>
#include <thread>
#include <utility>
// after it

#include "engine/base/system/machine.h"

namespace baton {

int usable_cores(const std::filesystem::path& /*root*/) {
  DWORD_PTR own = 0, all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all) != 0 && own != 0) return std::popcount(own);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::string processor_name() {
  std::array<char, 128> name{};
  auto bytes = static_cast<DWORD>(name.size());
  if (RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0", "ProcessorNameString",
                   RRF_RT_REG_SZ, nullptr, name.data(), &bytes) != ERROR_SUCCESS)
    return "CPU";
  return name.data();
}

std::string vector_instructions() {
  constexpr std::array<std::pair<DWORD, const char*>, 2> kKnown = {{{40, "avx2"}, {41, "avx512f"}}};  // PF_...
  std::string found;
  for (const auto& [feature, name] : kKnown) {
    if (IsProcessorFeaturePresent(feature) != 0) found += (found.empty() ? "" : " ") + std::string(name);
  }
  return found;
}

MachineMemory machine_memory(const std::filesystem::path& /*root*/) {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof(status);
  if (GlobalMemoryStatusEx(&status) == 0) return {};
  return {static_cast<std::int64_t>(status.ullAvailPhys), static_cast<std::int64_t>(status.ullTotalPhys)};
}

/// Large pages need a privilege that users do not have.
void* map_pages(std::size_t bytes, bool /*huge*/) noexcept {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(void* data, std::size_t /*bytes*/) noexcept { VirtualFree(data, 0, MEM_RELEASE); }

void lend_pages(void* data, std::size_t bytes) noexcept { VirtualAlloc(data, bytes, MEM_RESET, PAGE_READWRITE); }

void return_free_memory() noexcept { _heapmin(); }

}  // namespace baton
