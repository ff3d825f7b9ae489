// SPDX-License-Identifier: Apache-2.0
// The one way to call the CUDA runtime: a failure becomes a BackendError with the call, its code and text, and the
// place. Only files compiled in a CUDA build include this.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "engine/backend/device.h"

namespace baton::cuda {

inline void check(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // an error that does not end the context is forgotten, so that the next call is not blamed
  throw BackendError(std::string("CUDA: ") + call + " failed with " + cudaGetErrorName(code) + " (" +
                     std::to_string(static_cast<int>(code)) + "): " + cudaGetErrorString(code) + ", at " + file + ":" +
                     std::to_string(line));
}

}  // namespace baton::cuda

#define BATON_CUDA_CHECK(call) ::baton::cuda::check((call), #call, __FILE__, __LINE__)
