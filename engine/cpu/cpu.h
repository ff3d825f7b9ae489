// SPDX-License-Identifier: Apache-2.0
// Entry of the CPU backend.
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace baton {

/// `threads` 0: one per core the process may run on.
std::unique_ptr<Backend> make_cpu_backend(int threads);

/// The scalar fp32 oracle, written to be read; slow. Same interface, same results within stated tolerances.
std::unique_ptr<Backend> make_reference_backend();

}  // namespace baton
