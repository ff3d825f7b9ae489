// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "engine/backend/device.h"

namespace baton::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Blocks of at least this size come from mmap, which zeroes pages on first touch and can back them with huge pages.
constexpr std::size_t kMapped = 2 * kHugePage;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* map(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kHugePage);
  const std::size_t reserved = size + kHugePage;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(base);
  char* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage));
  if (aligned != begin) munmap(begin, static_cast<std::size_t>(aligned - begin));
  char* end = aligned + size;
  if (end != begin + reserved) munmap(end, static_cast<std::size_t>(begin + reserved - end));
#ifdef MADV_HUGEPAGE
  madvise(aligned, size, MADV_HUGEPAGE);  // only advice: a failure does no harm
#endif
  return aligned;
}

}  // namespace

void* allocate_zeroed(std::size_t bytes) {
  void* data = nullptr;
  if (bytes < kMapped) {
    data = ::operator new (std::max(bytes, kAlignment), std::align_val_t{kAlignment}, std::nothrow);
    if (data != nullptr) std::memset(data, 0, bytes);
  } else if (bytes <= static_cast<std::size_t>(PTRDIFF_MAX) - 2 * kHugePage) {
    data = map(bytes);
  }
  if (data == nullptr) throw BackendError(fmt::format("cannot allocate {} bytes of memory", bytes));
  return data;
}

void release_zeroed(void* data, std::size_t bytes) noexcept {
  if (bytes < kMapped) {
    ::operator delete (data, std::align_val_t{kAlignment});
  } else {
    munmap(data, round_up(bytes, kHugePage));
  }
}

}  // namespace baton::cpu
