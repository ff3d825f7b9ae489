// SPDX-License-Identifier: Apache-2.0
// What the process holds, for tests that say nothing grows over many runs.
#pragma once

#ifdef _WIN32
#include <windows.h>
// after it
#include <malloc.h>
#include <psapi.h>
#undef near  // words of a 16-bit compiler, which are names in tests
#undef far
#else
#include <malloc.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <fstream>
#include <string>

namespace baton::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedIsKept = true;  // sanitizers hold freed memory back for a while
#else
constexpr bool kFreedIsKept = false;
#endif

/// By how much ProcessMemory::in_use may grow though nothing leaks, in a test of one lasting thread.
constexpr std::int64_t kThreadCache = 240 << 10;

#ifdef _WIN32

/// Bytes: allocated in the heap of the C library and not freed, and in physical memory.
struct ProcessMemory {
  std::int64_t in_use = 0;
  std::int64_t resident = 0;

  static ProcessMemory now() {
    PROCESS_MEMORY_COUNTERS counters{};
    GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof(counters));
    ProcessMemory memory{0, static_cast<std::int64_t>(counters.WorkingSetSize)};
    _HEAPINFO block{};
    while (_heapwalk(&block) == _HEAPOK) {
      if (block._useflag == _USEDENTRY) memory.in_use += static_cast<std::int64_t>(block._size);
    }
    return memory;
  }
};

/// The largest part of the process that was ever in physical memory, in bytes.
inline std::int64_t peak_resident() {
  PROCESS_MEMORY_COUNTERS counters{};
  GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof(counters));
  return static_cast<std::int64_t>(counters.PeakWorkingSetSize);
}

#else

/// Bytes, as the C library and the kernel count them.
struct ProcessMemory {
  /// Allocated and not freed. Small freed blocks that a thread keeps for itself count too: of each living thread up to
  /// 236 KB, seven blocks of each size up to 1,040 bytes (none with GLIBC_TUNABLES=glibc.malloc.tcache_count=0).
  std::int64_t in_use = 0;
  /// In physical memory. Depends on where in the heap what stays happens to lie: a megabyte or two between equal
  /// processes.
  std::int64_t resident = 0;

  static ProcessMemory now() {
    std::ifstream file("/proc/self/statm");
    std::int64_t total = 0, resident = 0;
    file >> total >> resident;
    const auto heap = mallinfo2();
    return {static_cast<std::int64_t>(heap.uordblks + heap.hblkhd), resident * sysconf(_SC_PAGESIZE)};
  }
};

/// The largest part of the process that was ever in physical memory, in bytes.
inline std::int64_t peak_resident() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib * 1024;
  }
  return 0;
}

#endif

}  // namespace baton::test
