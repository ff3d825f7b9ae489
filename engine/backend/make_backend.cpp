// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/make_backend.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/backend/limits.h"
#include "engine/base/user_cache.h"
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

}  // namespace baton
