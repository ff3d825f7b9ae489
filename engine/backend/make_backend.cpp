// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/make_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/base/files.h"
#include "engine/cpu/cpu.h"
#include "engine/cuda/host/cuda.h"

namespace baton {
namespace {

/// Returns the N of "cuda:N", or -1.
int device_index(std::string_view device) {
  if (!device.starts_with("cuda:")) return -1;
  const std::string_view digits = device.substr(5);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() ? index : -1;
}

std::unique_ptr<Backend> make_cuda(int device) {
  const std::filesystem::path cache = user_cache();
  return make_cuda_backend(device, cache.empty() ? cache : cache / "products");
}

std::unique_ptr<Backend> make_automatic(int threads) {
  if (!cuda_present()) return make_cpu_backend(threads);
  try {
    return make_cuda(0);
  } catch (const BackendError& error) {
    return make_cpu_backend(threads, error.what());
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  const std::string_view device = options.device;
  if (device == "cpu") return make_cpu_backend(options.threads, options.fallback);
  if (device == "auto") return make_automatic(options.threads);
  if (device == "cuda") return make_cuda(0);
  if (const int index = device_index(device); index >= 0) return make_cuda(index);
  throw BackendError(fmt::format("unknown device '{}': expected auto, cpu, cuda or cuda:N", device));
}

MachineLimits measure_limits(Backend& backend, const LimitsToMeasure& of) {
  const int index = device_index(backend.info().name);
  return index >= 0 ? measure_cuda_limits(index) : measure_host_limits(backend, of);
}

namespace {

constexpr int kPasses = 10;

/// Runs part(thread) on all threads at once; returns the seconds from the first one's begin to the last one's end,
/// which the threads take themselves: the caller may be woken late.
double seconds_of_all(std::size_t threads, const std::function<void(std::size_t)>& part) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> begin(threads), end(threads);
  std::atomic<std::ptrdiff_t> missing = static_cast<std::ptrdiff_t>(threads);
  std::vector<std::jthread> running;
  try {
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        --missing;
        while (missing > 0) std::this_thread::yield();
        begin[t] = Clock::now();
        part(t);
        end[t] = Clock::now();
      });
    }
  } catch (...) {
    missing = 0;  // lets those go on that wait
    throw;
  }
  running.clear();
  return std::chrono::duration<double>(*std::max_element(end.begin(), end.end()) -
                                       *std::min_element(begin.begin(), begin.end()))
      .count();
}

double products_per_second(Products kind, std::size_t threads) {
  constexpr std::int64_t kTimes = 1 << 20;
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<double> done(threads);
    const double seconds = seconds_of_all(threads, [&](std::size_t t) { done[t] = repeat_products(kind, kTimes); });
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / seconds);
  }
  return best;
}

double bytes_per_second(Backend& backend, std::int64_t bytes, std::size_t threads) {
  constexpr std::int64_t kLeast = std::int64_t{16} << 20, kMost = std::int64_t{1} << 30;
  const Buffer buffer = backend.allocate(static_cast<std::size_t>(std::clamp(bytes, kLeast, kMost)));
  std::memset(buffer.data(), 1, buffer.bytes());
  const std::span<const std::byte> all(buffer.data(), buffer.bytes());
  const std::size_t share = all.size() / threads;
  std::atomic<std::uint32_t> sink = 0;
  double best = 0.0;
  for (const std::size_t streams : {1, 2, 4, 8}) {
    for (int pass = 0; pass < kPasses; ++pass) {
      const double seconds =
          seconds_of_all(threads, [&](std::size_t t) { sink += read_streams(all.subspan(t * share, share), streams); });
      best = std::max(best, static_cast<double>(share * threads) / seconds);
    }
  }
  return best;
}

struct ProductsOfCpu {
  Products kind;
  const char* name;
};

}  // namespace

MachineLimits measure_host_limits(Backend& backend, const LimitsToMeasure& of) {
  const auto threads = static_cast<std::size_t>(std::max(1, backend.info().threads));
  std::vector<ProductsOfCpu> kinds = {{Products::f32, "f32"}};
  if (of.bf16_pairs) kinds.push_back({Products::bf16, "bf16 in pairs"});
  if (of.quantized) {
    kinds.push_back({Products::bytes, "bytes"});
    kinds.push_back({Products::tiles, "bytes in tiles"});
  }
  MachineLimits limits;
  for (const auto& [kind, name] : kinds) {
    const double found = products_per_second(kind, threads) / 1e9;
    if (found <= limits.gemm_gflops) continue;
    limits.gemm_gflops = found;
    limits.products = name;
  }
  limits.bandwidth_gbs = bytes_per_second(backend, of.bytes, threads) / 1e9;
  return limits;
}

}  // namespace baton
