// SPDX-License-Identifier: Apache-2.0
// The entry point of the CUDA backend. A build without it links unavailable.cpp, whose functions throw.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/make_backend.h"

namespace baton {

/// True when this build holds the CUDA backend and the machine has a GPU and a driver, usable or not.
bool cuda_present();

/// Returns the backend of a device. `measured`: a folder where the fastest algorithms of products are kept from one
/// process to the next; an empty path: they are measured in each. Throws BackendError that says what is missing.
std::unique_ptr<Backend> make_cuda_backend(int device, const std::filesystem::path& measured = {});

/// Measures the peak rates of a device (engine/backend/make_backend.h). Throws BackendError.
MachineLimits measure_cuda_limits(int device);

}  // namespace baton
