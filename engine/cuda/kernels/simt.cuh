// SPDX-License-Identifier: Apache-2.0
// All that kernel sources see of the machine: threads, barriers, warps, shared memory, tensor cores, launches.
// nvcc takes the device; any other compiler takes the tests' emulator, which runs the same sources on the host
// (docs/decisions/0014-cuda-backend.md).
#pragma once

#include "engine/cuda/host/types.h"
#ifdef __CUDACC__
#include "engine/cuda/kernels/simt_device.cuh"
#else
#include <simt_emulator.h>
#endif
