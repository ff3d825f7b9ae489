// SPDX-License-Identifier: Apache-2.0
// For the few functions whose bits must be the same on the host and in a kernel: one source, compiled for both.
#pragma once

#ifdef __CUDACC__
#define BATON_BOTH __host__ __device__ inline
#else
#define BATON_BOTH inline
#endif
