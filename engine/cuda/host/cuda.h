// SPDX-License-Identifier: Apache-2.0
// The entry point of the CUDA backend. A build without it links unavailable.cpp, whose functions throw.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/limits.h"

namespace baton {

/// True when this build holds the CUDA backend and a usable device is present.
bool cuda_available();

/// Returns the backend of a device. Throws BackendError that says what is missing.
std::unique_ptr<Backend> make_cuda_backend(int device);

/// Measures the peak rates of a device (engine/backend/limits.h). Throws BackendError.
MachineLimits measure_cuda_limits(int device);

}  // namespace baton
