// SPDX-License-Identifier: Apache-2.0
// The CUDA backend without a GPU: its own host code over the strict runtime (tests/support/strict), its own kernels
// over the emulator.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/host/cuda.h"
#include "engine/cuda/host/cuda_backend.h"
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

/// Until destruction, threads run in this order between barriers.
class InOrder {
 public:
  explicit InOrder(simt::Order order, std::uint32_t seed = 1) : before_(simt::settings()) {
    simt::settings() = {order, seed};
  }
  ~InOrder() { simt::settings() = before_; }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

 private:
  simt::Settings before_;
};

}  // namespace baton::test
