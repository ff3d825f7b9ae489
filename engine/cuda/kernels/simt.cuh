// SPDX-License-Identifier: Apache-2.0
// The machine as kernel sources see it: threads, barriers, warps, shared memory, tensor cores, launches. nvcc compiles
// them for the device; any other compiler uses the tests' emulator, which runs the same sources on the host
// (docs/decisions/cuda.md).
#pragma once

#include "engine/cuda/host/types.h"
#ifdef __CUDACC__
#include "engine/cuda/kernels/simt_device.cuh"
#else
#include <simt_emulator.h>
#endif

#include <utility>

#include "engine/cuda/host/check.h"
#include "engine/cuda/host/launch_check.h"

namespace baton::cuda {

/// Launches kernel<<<grid, threads, shared_bytes, stream>>>(arguments...), or appends the launch to the stream's log.
/// Throws BackendError.
template <class... Params, class... Args>
void launch(Stream stream, dim3 grid, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
            Args&&... args) {
  if (stream.log != nullptr) {
    stream.log->add(kernel, grid.x, grid.y, threads, shared_bytes, static_cast<const Params&>(args)...);
    return;
  }
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    BATON_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  }
  start_kernel(stream, grid, threads, shared_bytes, kernel, std::forward<Args>(args)...);
  check_launch(reinterpret_cast<const void*>(kernel), stream);
}

}  // namespace baton::cuda
