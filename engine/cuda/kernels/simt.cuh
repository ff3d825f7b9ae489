// SPDX-License-Identifier: Apache-2.0
// The machine as kernel sources see it: threads, barriers, warps, shared memory, tensor cores, launches. nvcc compiles
// them for the device; any other compiler uses the tests' emulator, which runs the same sources on the host
// (docs/decisions/0014-cuda-backend.md).
#pragma once

#include "engine/cuda/host/types.h"
#ifdef __CUDACC__
#include "engine/cuda/kernels/simt_device.cuh"
#else
#include <simt_emulator.h>
#endif
