// SPDX-License-Identifier: Apache-2.0
// The implementation of simt.cuh for a device. All inline PTX of the backend is in ptx.cuh.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "engine/cuda/host/check.h"
#include "engine/cuda/host/launch_log.h"
#include "engine/cuda/kernels/ptx.cuh"

namespace baton::cuda {

/// Returns the block's dynamic shared memory. A kernel calls it once, with the layout whose size its launch passed.
template <class Layout>
__device__ __forceinline__ Layout& shared_memory() {
  extern __shared__ __align__(128) unsigned char baton_shared_memory[];
  return *reinterpret_cast<Layout*>(baton_shared_memory);
}

/// Launches kernel<<<grid, threads, shared_bytes, stream>>>(arguments...), or appends the launch to the stream's log.
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
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream.native)>>>(std::forward<Args>(args)...);
  BATON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace baton::cuda
