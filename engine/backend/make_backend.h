// SPDX-License-Identifier: Apache-2.0
// The only place that knows every backend.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/backend/backend.h"

namespace baton {

struct BackendOptions {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  std::string fallback = {};    // of device cpu, where it takes a GPU's place: why
};

/// Returns a backend for the device. Throws BackendError that says what is missing when the device is unknown or cannot
/// be used. `auto` takes the CPU where there is no GPU, or where the GPU cannot be used: then BackendInfo::fallback
/// says why.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace baton
