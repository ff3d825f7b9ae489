// SPDX-License-Identifier: Apache-2.0
// The CUDA backend without a GPU: its own host code over the strict runtime (tests/support/strict), its own kernels
// over the emulator.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/cuda/host/cuda.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "simt_emulator.h"

namespace baton::test {

inline std::unique_ptr<Backend> make_emulated_backend() { return make_cuda_backend(0); }

/// `count` values at an address of the device, once all work so far is complete.
template <class T>
std::vector<T> read_back(cuda::Staging& staging, const T* device, std::size_t count) {
  std::vector<T> values(count);
  staging.to_host(std::as_writable_bytes(std::span(values)), device);
  return values;
}

/// Settings of the emulator until destruction.
class WithSettings {
 public:
  explicit WithSettings(const simt::Settings& settings) : before_(std::exchange(simt::settings(), settings)) {}
  ~WithSettings() { simt::settings() = before_; }
  WithSettings(const WithSettings&) = delete;
  WithSettings& operator=(const WithSettings&) = delete;

 private:
  simt::Settings before_;
};

/// Threads run in this order between barriers.
struct InOrder : WithSettings {
  explicit InOrder(simt::Order order, std::uint32_t seed = 1) : WithSettings({order, seed, simt::settings().shadow}) {}
};

/// Kernels run whose sources are not compiled for the shadow memory.
struct WithoutShadow : WithSettings {
  WithoutShadow() : WithSettings({simt::settings().order, simt::settings().seed, false}) {}
};

}  // namespace baton::test
