// SPDX-License-Identifier: Apache-2.0
// The CUDA backend over the emulator: its own host code and its own kernels, run on the host. Device memory is host
// memory, so tests may look at it; matrix products are a plain loop in place of the library's.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"
#include "simt_emulator.h"

namespace baton::test {

/// Memory has guards on both sides, checked when it is given back, and begins as NaN. `multiprocessors` is what plans
/// are made for.
std::unique_ptr<cuda::Runtime> make_emulated_runtime(int multiprocessors = 2);

std::unique_ptr<Backend> make_emulated_backend(int multiprocessors = 2);

/// The same, and device memory cannot be touched but by kernels and copies: host code that looks at it crashes. One at
/// a time.
std::unique_ptr<Backend> make_sealed_backend();

/// The same over streams that run what they are given late, or some of it with each call (streams.h). One at a time.
std::unique_ptr<Backend> make_streamed_backend();

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
