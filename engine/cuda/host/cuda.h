// SPDX-License-Identifier: Apache-2.0
// Entry of the CUDA backend. A build without it links unavailable.cpp, which says so.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/limits.h"

namespace baton {

/// True when this build holds the CUDA backend and a usable device is present.
bool cuda_available();

/// Throws BackendError with what is missing.
std::unique_ptr<Backend> make_cuda_backend(int device);

/// What the device can do at best, measured now (engine/backend/limits.h). Throws BackendError.
MachineLimits measure_cuda_limits(int device);

}  // namespace baton
