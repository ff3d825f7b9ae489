// SPDX-License-Identifier: Apache-2.0
// Memory by pages, and what the C library keeps of it.
#pragma once

#include <cstddef>

namespace baton {

/// Zeroed memory in whole pages, aligned as huge pages are where the system has those; null: there is none. `huge`: it
/// should be backed by huge pages. The caller gives it back with unmap_pages, with the same size.
void* map_pages(std::size_t bytes, bool huge) noexcept;
void unmap_pages(void* data, std::size_t bytes) noexcept;
/// The system may take the pages for others until they are written again; what they hold until then is undefined.
void lend_pages(void* data, std::size_t bytes) noexcept;

/// Returns freed memory that the C library keeps for later allocations to the operating system. Takes milliseconds;
/// threads that allocate meanwhile wait. Does nothing where the C library offers no way (it is glibc's malloc_trim).
void return_free_memory() noexcept;

}  // namespace baton
