// SPDX-License-Identifier: Apache-2.0
#include "tests/support/strict/launch.h"

#include "simt_emulator.h"

namespace baton::simt {

void start(void* stream, const void* kernel, dim3 grid, unsigned threads, std::size_t shared_bytes,
           std::function<void()> body) {
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  test::strict::launch_kernel(stream, {kernel, blocks, threads, shared_bytes},
                              [=, body = std::move(body)] { run_grid(grid, threads, shared_bytes, body, kernel); });
}

}  // namespace baton::simt
