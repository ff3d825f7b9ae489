// SPDX-License-Identifier: Apache-2.0
// The CPU backends.
#pragma once

#include <memory>
#include <string>

#include "engine/backend/backend.h"

namespace baton {

/// Returns the CPU backend. `threads` counts the caller; 0: one per core that the process may use. Throws
/// std::invalid_argument when `threads` is negative. `fallback`: BackendInfo::fallback.
std::unique_ptr<Backend> make_cpu_backend(int threads, std::string fallback = {});

/// Returns the scalar fp32 reference, written to be read; slow. Its results equal the CPU backend's within the
/// tolerances that the tests state.
std::unique_ptr<Backend> make_reference_backend();

}  // namespace baton
