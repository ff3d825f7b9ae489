// SPDX-License-Identifier: Apache-2.0
// Prints the compute capability of each device of the strict runtime, as nvidia-smi does for those of a machine: what
// a build with BATON_CUDA=AUTO asks (cmake/cuda_choice.cmake).
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 1;
  for (int device = 0; device < count; ++device) {
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
      return 1;
    std::printf("%d.%d\n", major, minor);
  }
}
