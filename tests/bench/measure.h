// Timing for the benchmarks. The machine may be shared, so everything is a median.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace baton::bench {

struct Options {
  std::string filter;        // run benchmarks whose name contains it
  int threads = 0;           // of the backend and of OpenBLAS; 0: one per core
  bool json = false;         // one JSON object per line
  double seconds = 0.4;      // spent on each measured line
};

/// One line of the table. Zero means: not meaningful here.
struct Result {
  std::string name, shape;
  double seconds = 0;  // median
  double flops = 0, bytes = 0;
  double baseline_seconds = 0;  // OpenBLAS sgemm of the same shape
};

/// Median seconds of `run`, at least 5 times and until `budget` seconds are spent; `before` is not timed.
inline double median_seconds(double budget, const std::function<void()>& run,
                             const std::function<void()>& before = [] {}) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<double> times;
  before();
  run();
  for (const auto begin = Clock::now(); times.size() < 5 || (seconds_since(begin) < budget && times.size() < 1000);) {
    before();
    const auto start = Clock::now();
    run();
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

inline std::vector<float> random_floats(std::size_t count) {
  std::minstd_rand engine(1);
  std::vector<float> out(count);
  for (float& value : out) value = static_cast<float>(engine() % 2001) / 1000.0f - 1.0f;
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
