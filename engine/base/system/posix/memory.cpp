// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace baton {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* map_pages(std::size_t bytes, [[maybe_unused]] bool huge) noexcept {
  const std::size_t reserved = bytes + kHugePage;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(base);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  char* aligned = begin + before;
  if (before != 0) munmap(begin, before);
  char* end = aligned + bytes;
  if (end != begin + reserved) munmap(end, static_cast<std::size_t>(begin + reserved - end));
#ifdef MADV_HUGEPAGE
  if (huge) madvise(aligned, bytes, MADV_HUGEPAGE);  // only advice: a failure does no harm
#endif
  return aligned;
}

void unmap_pages(void* data, std::size_t bytes) noexcept { munmap(data, bytes); }

void lend_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_FREE
  madvise(data, bytes, MADV_FREE);
#endif
}

void return_free_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace baton
