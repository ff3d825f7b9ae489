// SPDX-License-Identifier: Apache-2.0
// The backend over any Runtime: checks at the border, plans, launches.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

std::unique_ptr<Backend> make_backend_over(std::unique_ptr<Runtime> runtime);

}  // namespace baton::cuda
