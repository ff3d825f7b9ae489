// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/memory.h"

#include <windows.h>
// after it
#include <malloc.h>

namespace baton {

/// Large pages need a privilege that users do not have.
void* map_pages(std::size_t bytes, bool /*huge*/) noexcept {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(void* data, std::size_t /*bytes*/) noexcept { VirtualFree(data, 0, MEM_RELEASE); }

void lend_pages(void* data, std::size_t bytes) noexcept { VirtualAlloc(data, bytes, MEM_RESET, PAGE_READWRITE); }

void return_free_memory() noexcept { _heapmin(); }

}  // namespace baton
