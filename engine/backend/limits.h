// SPDX-License-Identifier: Apache-2.0
// The measured peak rates of a machine, which prefill and decode are compared with.
#pragma once

#include "engine/backend/backend.h"

namespace baton {

struct MachineLimits {
  double gemm_gflops = 0;    // of a large matrix product, in GFLOP/s
  double bandwidth_gbs = 0;  // of memory, in GB/s
};

/// Measures the device behind the backend. On the CPU: our own product of two large matrices, weights of type `dtype`
/// and activations as given, and a read of 384 MiB by all threads. On a GPU: cuBLAS's bf16 product of random numbers,
/// and a copy within the device's memory, counting bytes read and written. Throws BackendError when memory is short.
MachineLimits measure_limits(Backend& backend, DType dtype, Activations activations);

/// The CPU's measurement, for any backend whose buffers the host can read.
MachineLimits measure_host_limits(Backend& backend, DType dtype, Activations activations);

}  // namespace baton
