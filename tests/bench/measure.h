// SPDX-License-Identifier: Apache-2.0
// Timing for the benchmarks. A shared machine is noisy: medians, of CPU time where it is too busy.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace baton::bench {

struct Options {
  std::string filter;     // run benchmarks whose name contains it
  int threads = 0;        // of the backend and of OpenBLAS; 0: one per core
  double seconds = 0.4;   // spent on each measured line
  bool cpu_time = false;  // time on the processor instead of time on the clock; for one thread
  bool json = false;      // one JSON object per line
};

/// One line of the table. Zero means: not meaningful here.
struct Result {
  std::string name, shape;
  double seconds = 0;
  double flops = 0, bytes = 0;
  double baseline_seconds = 0;  // OpenBLAS sgemm of the same shape
};

inline double now(const Options& options) {
  if (options.cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of `run`, at least 5 times and as often as fits in the budget; `before` is not timed.
inline double median_seconds(
    const Options& options, const std::function<void()>& run, const std::function<void()>& before = [] {}) {
  std::vector<double> times;
  before();
  run();
  const double begin = now(options);
  while (times.size() < 5 || (now(options) - begin < options.seconds && times.size() < 1000)) {
    before();
    const double start = now(options);
    run();
    times.push_back(now(options) - start);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

inline std::vector<float> random_floats(std::size_t count) {
  std::minstd_rand engine(1);
  std::vector<float> out(count);
  for (float& value : out) value = static_cast<float>(engine() % 2001) / 1000.0f - 1.0f;
  return out;
}

/// Quantised blocks are such bytes: their scales may be anything, which no time depends on.
inline std::vector<std::byte> random_bytes(std::size_t count) {
  std::minstd_rand engine(2);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) byte = static_cast<std::byte>(engine() >> 8 & 0x3b);  // no infinities or NaN
  return out;
}

/// Reads more memory than the caches hold, so that what comes next reads from memory.
class CacheFlush {
 public:
  CacheFlush() : memory_(std::size_t{96} << 20, 1) {}
  void operator()() {
    for (std::size_t i = 0; i < memory_.size(); i += 16) sink_ = sink_ + memory_[i];
  }

 private:
  std::vector<int> memory_;
  volatile int sink_ = 0;
};

}  // namespace baton::bench
