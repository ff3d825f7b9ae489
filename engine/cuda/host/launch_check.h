// SPDX-License-Identifier: Apache-2.0
// Errors of launches, with the name of the kernel.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/cuda/host/types.h"

namespace baton::cuda {

/// True with BATON_CUDA_SYNC=1 in the environment: every launch waits for its kernel, so that an error of a kernel is
/// reported by its own launch, and nothing is captured. For finding errors; decoding is several times slower.
bool waits_for_kernels();

/// Throws BackendError that names the kernel when it could not be launched, or, where launches wait for their kernels,
/// when it failed.
void check_launch(const void* kernel, Stream stream);

// Variables of the environment that select how the backend works.

/// True when the variable has this value.
inline bool is_set(const char* variable, std::string_view value) {
  const char* found = std::getenv(variable);
  return found != nullptr && value == found;
}

/// Returns the variable's number; `otherwise` where it has none.
inline std::int64_t number_in(const char* variable, std::int64_t otherwise) {
  const char* found = std::getenv(variable);
  const std::string_view text = found != nullptr ? found : "";
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

}  // namespace baton::cuda
