// SPDX-License-Identifier: Apache-2.0
// Machines that people have, on the strict runtime: several devices, old ones, drivers that are too old, no memory.
#include <catch2/catch.hpp>
#include <thread>

#include "engine/backend/limits.h"
#include "engine/backend/make_backend.h"
#include "engine/cuda/host/cuda.h"
#include "tests/support/strict/strict.h"

namespace baton::test {
namespace {

using Catch::Contains;

TEST_CASE("devices that cannot be used are refused with what is missing") {
  strict::restart({.driver = cudaErrorInsufficientDriver});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("cudaErrorInsufficientDriver"));
  strict::restart({.devices = {}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("no NVIDIA driver or no GPU") && Contains("cudaErrorNoDevice"));
  REQUIRE_FALSE(cuda_available());
  REQUIRE(make_backend({"auto", 1})->info().name == "cpu");
  strict::restart({.devices = {{.major = 7, .minor = 5}}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("expected compute capability 8.0 or higher, found 7"));
  strict::restart({.devices = {{.pools = false}}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("expected a driver with memory pools"));
  strict::restart();
  REQUIRE_THROWS_WITH(make_cuda_backend(1), Contains("unknown device 'cuda:1': this machine has 1 GPU"));
}

TEST_CASE("an engine on the second device leaves the first alone, on whatever thread it is used") {
  strict::restart({.devices = {{}, {}}});
  auto backend = make_cuda_backend(1);
  CHECK(backend->info().name == "cuda:1");
  Buffer made;
  std::thread([&] {
    made = backend->allocate(100);
    std::vector<std::byte> back(100, std::byte{1});
    backend->copy_to_host(back, made.data());
    CHECK(back[99] == std::byte{0});
  }).join();
  Buffer pinned = backend->allocate_host(100);
  std::thread([&] { backend->follow(backend->upload(made, pinned, 0, 100)); }).join();
  std::thread([&] {
    backend->wait();
    backend->mark();
    CHECK(backend->take_marks().empty());
    pinned = {};
    made = {};
  }).join();
  std::thread([&] { backend = nullptr; }).join();
}

TEST_CASE("limits are measured on the device that is asked for") {
  strict::restart({.devices = {{}, {.memory = std::size_t{40} << 30}}, .runs_work = false});
  const MachineLimits limits = measure_cuda_limits(1);
  CHECK(limits.gemm_gflops > 0);
  CHECK(limits.bandwidth_gbs > 0);
}

}  // namespace
}  // namespace baton::test
