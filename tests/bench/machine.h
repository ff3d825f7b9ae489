// SPDX-License-Identifier: Apache-2.0
// What the machine can do, measured in the same run as the operations.
#pragma once

#include <cstdint>
#include <string>

#include "engine/backend/backend.h"
#include "measure.h"

namespace baton::bench {

/// The kernels that OpenBLAS runs. It falls back to those of an old processor when it does not know a new one, and the
/// choice is made when the process starts: use_best_sgemm starts the process again with the right one if need be.
std::string sgemm_kernels();
void use_best_sgemm(char** arguments);

/// Seconds of OpenBLAS sgemm, x[T, C] * w[N, C]^T, on `threads` threads; `before` each is not timed.
double sgemm_seconds(
    std::int64_t rows, std::int64_t width, std::int64_t depth, int threads, const Options& options,
    const std::function<void()>& before = [] {});

/// Bytes per second of `threads` threads that read 512 MiB of the backend's memory.
double read_bandwidth(Backend& backend, int threads, const Options& options);

}  // namespace baton::bench
