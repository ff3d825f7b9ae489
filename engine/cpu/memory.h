// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backends: zeroed, aligned to 64 bytes, and on huge pages where the block is large.
#pragma once

#include <cstddef>

namespace baton::cpu {

/// Returns memory that release_zeroed frees, with the same size. Throws BackendError naming the size when memory is
/// short. For zero bytes the pointer is valid, too.
void* allocate_zeroed(std::size_t bytes);
void release_zeroed(void* data, std::size_t bytes) noexcept;

}  // namespace baton::cpu
