// SPDX-License-Identifier: Apache-2.0
// The CUDA backend over any Runtime: it checks the arguments of operations, plans, and launches kernels.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Returns the Runtime of a usable device. Throws BackendError.
std::unique_ptr<Runtime> make_device_runtime(int device);

std::unique_ptr<Backend> make_backend_over(std::unique_ptr<Runtime> runtime);

}  // namespace baton::cuda
