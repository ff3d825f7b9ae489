// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backends: zeroed, aligned to 64 bytes, on huge pages where it is large.
#pragma once

#include <cstddef>

namespace baton::cpu {

/// Throws BackendError naming the size when there is none left. Zero bytes give a valid pointer.
void* allocate_zeroed(std::size_t bytes);
void release_zeroed(void* data, std::size_t bytes) noexcept;

}  // namespace baton::cpu
