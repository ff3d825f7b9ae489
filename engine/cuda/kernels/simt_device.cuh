// SPDX-License-Identifier: Apache-2.0
// The implementation of simt.cuh for a device. All inline PTX of the backend is in ptx.cuh.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "engine/cuda/host/types.h"
#include "engine/cuda/kernels/ptx.cuh"

namespace baton::cuda {

/// Returns the block's dynamic shared memory. A kernel calls it once, with the layout whose size its launch passed.
template <class Layout>
__device__ __forceinline__ Layout& shared_memory() {
  extern __shared__ __align__(128) unsigned char baton_shared_memory[];
  return *reinterpret_cast<Layout*>(baton_shared_memory);
}

/// Queues the kernel; cudaGetLastError says whether that worked.
template <class... Params, class... Args>
void start_kernel(Stream stream, dim3 grid, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
                  Args&&... args) {
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream.native)>>>(std::forward<Args>(args)...);
}

}  // namespace baton::cuda
