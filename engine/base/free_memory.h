// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace baton {

/// Returns freed memory that the C library keeps for later allocations to the operating system. Takes milliseconds;
/// threads that allocate meanwhile wait. Does nothing where the C library offers no way (it is glibc's malloc_trim).
void return_free_memory() noexcept;

}  // namespace baton
