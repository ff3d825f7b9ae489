// SPDX-License-Identifier: Apache-2.0
// What a device can do at best, measured: the limits that prefill and decode are compared with.
#pragma once

#include "engine/backend/backend.h"

namespace baton {

struct MachineLimits {
  double gemm_gflops = 0;    // of a large product
  double bandwidth_gbs = 0;  // of memory
};

/// Of the device behind the backend. On the CPU: our own product of two large matrices of type `dtype`, and a read of
/// memory by all threads. On a GPU: cuBLAS's bf16 product of random numbers, and a copy within the device's memory,
/// bytes read and written. Throws BackendError where there is too little memory.
MachineLimits measure_limits(Backend& backend, DType dtype);

/// The first of these, of any backend whose buffers the host can read.
MachineLimits measure_host_limits(Backend& backend, DType dtype);

}  // namespace baton
