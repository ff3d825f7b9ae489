// SPDX-License-Identifier: Apache-2.0
// Launches of kernels and of products on the strict runtime.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/support/strict/strict.h"

namespace baton::test::strict {

struct Launch {
  const void* kernel = nullptr;
  std::uint64_t blocks = 0;
  unsigned threads = 0;
  std::size_t shared_bytes = 0;
};

/// What `kernel<<<...>>>` does: cudaGetLastError says whether it could be launched. body runs all threads.
void launch_kernel(void* stream, const Launch& launch, std::function<void()> body);

/// The bytes of shared memory that one block may have.
std::size_t max_shared_bytes(const DeviceSpec& spec);

}  // namespace baton::test::strict
