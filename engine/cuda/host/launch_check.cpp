// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/launch_check.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "engine/cuda/host/check.h"

namespace baton::cuda {
namespace {

/// Returns "norm_rows<float, true>(...)", or "a kernel" where the runtime does not know its name.
std::string name_of(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return "a kernel";
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                          &std::free);
  return "kernel " + std::string(status == 0 ? plain.get() : mangled);
}

}  // namespace

bool waits_for_kernels() {
  static const bool waits = is_set("BATON_CUDA_SYNC", "1");
  return waits;
}

void check_launch(const void* kernel, Stream stream) {
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    check(code, ("the launch of " + name_of(kernel)).c_str(), __FILE__, __LINE__);
  if (!waits_for_kernels()) return;
  const std::string name = name_of(kernel);  // after an error of the kernel, no call works
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native)), name.c_str(), __FILE__, __LINE__);
}

}  // namespace baton::cuda
