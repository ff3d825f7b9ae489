// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/make_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
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

MachineLimits measure_limits(Backend& backend, DType dtype, Activations activations) {
  const int index = device_index(backend.info().name);
  return index >= 0 ? measure_cuda_limits(index) : measure_host_limits(backend, dtype, activations);
}

namespace {

constexpr double kSeconds = 0.3;  // the least time per measurement

double median_seconds(const std::function<void()>& run) {
  std::vector<double> times;
  double spent = 0.0;
  while (times.size() < 5 || (spent < kSeconds && times.size() < 1000)) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    spent += times.back();
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double gemm_gflops(Backend& backend, DType dtype, Activations activations) {
  constexpr std::int64_t kRows = 480, kWidth = 4096, kDeep = 2048;
  std::vector<float> values(static_cast<std::size_t>(kWidth * kDeep));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  const ConstTensorView weights = view_of(static_cast<const float*>(values.data()), kWidth, kDeep);
  const auto matrix = backend.load_matrix({&weights, 1}, dtype, activations);
  const Buffer x = backend.allocate(kRows * kDeep * sizeof(float)),
               out = backend.allocate(kRows * kWidth * sizeof(float));
  backend.copy_to_device(x.data(), std::as_bytes(std::span(values).first(kRows * kDeep)));
  const auto run = [&] {
    backend.matmul(out.view(DType::f32, kRows, kWidth), x.view(DType::f32, kRows, kDeep), *matrix, {});
  };
  run();
  return 2.0 * kRows * kWidth * kDeep / median_seconds(run) / 1e9;
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double bandwidth_gbs(Backend& backend) {
  const Buffer buffer = backend.allocate(std::size_t{384} << 20);
  std::memset(buffer.data(), 1, buffer.bytes());
  const std::span words(reinterpret_cast<const std::uint64_t*>(buffer.data()), buffer.bytes() / sizeof(std::uint64_t));
  const auto threads = static_cast<std::size_t>(std::max(1, backend.info().threads));
  std::vector<std::uint64_t> sums(threads);
  volatile std::uint64_t sink = 0;
  const double seconds = median_seconds([&] {
    std::vector<std::jthread> readers;
    const std::size_t share = words.size() / threads;
    for (std::size_t t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] { sums[t] = sum_of(words.subspan(t * share, share)); });
    }
    readers.clear();
    for (const std::uint64_t sum : sums) sink = sink + sum;
  });
  return static_cast<double>(buffer.bytes()) / seconds / 1e9;
}

}  // namespace

MachineLimits measure_host_limits(Backend& backend, DType dtype, Activations activations) {
  return {gemm_gflops(backend, dtype, activations), bandwidth_gbs(backend)};
}

}  // namespace baton
