// SPDX-License-Identifier: Apache-2.0
// Whether the program holds kernels for a device.
#pragma once

#include <cuda_runtime_api.h>

namespace baton::cuda {

/// Looks one kernel up on the selected device: cudaErrorNoKernelImageForDevice when neither machine code nor PTX of
/// this build fits it.
cudaError_t look_up_kernel();

}  // namespace baton::cuda
