// What the machine can do, measured in the same run as the operations.
#pragma once

#include <cstdint>

namespace baton::bench {

/// Seconds of OpenBLAS sgemm, x[T, C] * w[N, C]^T, on `threads` threads.
double sgemm_seconds(std::int64_t rows, std::int64_t width, std::int64_t depth, int threads, double budget);

/// Bytes per second of `threads` threads that read memory no cache holds.
double read_bandwidth(int threads, double budget);

}  // namespace baton::bench
