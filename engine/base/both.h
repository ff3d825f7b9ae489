// SPDX-License-Identifier: Apache-2.0
// Support for the few functions whose bits must be equal on the host and in a kernel: one source is compiled for both.
#pragma once

#ifdef __CUDACC__
#define BATON_BOTH __host__ __device__ inline
#else
#define BATON_BOTH inline
#endif
