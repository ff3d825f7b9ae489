// SPDX-License-Identifier: Apache-2.0
// The only ways to call the CUDA runtime. BATON_CUDA_CHECK: a failure becomes a BackendError with the call, its code
// and text, and the source line. ignore(): for destructors, which can do nothing about a failure. Only files compiled
// in a CUDA build include this header.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "engine/backend/backend.h"

namespace baton::cuda {

inline void check(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // resets errors that do not end the context, so that the next call does not report them
  throw BackendError(std::string("CUDA: ") + call + " failed with " + cudaGetErrorName(code) + " (" +
                     std::to_string(static_cast<int>(code)) + "): " + cudaGetErrorString(code) + ", at " + file + ":" +
                     std::to_string(line));
}

/// Resets the error, so that no later call reports it.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) cudaGetLastError();
}

}  // namespace baton::cuda

#define BATON_CUDA_CHECK(call) ::baton::cuda::check((call), #call, __FILE__, __LINE__)

// Whether the program holds kernels for a device.

namespace baton::cuda {

/// Looks one kernel up on the selected device: cudaErrorNoKernelImageForDevice when neither machine code nor PTX of
/// this build fits it.
cudaError_t look_up_kernel();

}  // namespace baton::cuda
