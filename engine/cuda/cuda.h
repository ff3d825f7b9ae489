// Entry of the CUDA backend. A build without it links unavailable.cpp, which says so.
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace baton {

/// True when this build holds the CUDA backend and a usable device is present.
bool cuda_available();

/// Throws BackendError with what is missing.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace baton
