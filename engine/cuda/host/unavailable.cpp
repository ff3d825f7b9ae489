// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA backend in a build without it.
#include "engine/cuda/host/cuda.h"

namespace baton {

bool cuda_present() { return false; }

std::unique_ptr<Backend> make_cuda_backend(int /*device*/, const std::filesystem::path& /*measured*/) {
  throw BackendError("device 'cuda': this build has no CUDA backend; use --device cpu or auto");
}

MachineLimits measure_cuda_limits(int /*device*/) {
  throw BackendError("device 'cuda': this build has no CUDA backend");
}

}  // namespace baton
