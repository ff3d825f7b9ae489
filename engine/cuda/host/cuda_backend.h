// SPDX-License-Identifier: Apache-2.0
// The CUDA backend over any Runtime: it checks the arguments of operations, plans, and launches kernels.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Returns the Runtime of a usable device. `measured`: see make_cuda_backend. Throws BackendError.
std::unique_ptr<Runtime> make_device_runtime(int device, const std::filesystem::path& measured = {});

std::unique_ptr<Backend> make_backend_over(std::unique_ptr<Runtime> runtime);

}  // namespace baton::cuda
