// SPDX-License-Identifier: Apache-2.0
// Errors of launches, with the name of the kernel.
#pragma once

#include "engine/cuda/host/types.h"

namespace baton::cuda {

/// True with BATON_CUDA_SYNC=1 in the environment: every launch waits for its kernel, so that an error of a kernel is
/// reported by its own launch, and nothing is captured. For finding errors; decoding is several times slower.
bool waits_for_kernels();

/// Throws BackendError that names the kernel when it could not be launched, or, where launches wait for their kernels,
/// when it failed.
void check_launch(const void* kernel, Stream stream);

}  // namespace baton::cuda
