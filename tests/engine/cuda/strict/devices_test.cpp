// SPDX-License-Identifier: Apache-2.0
// Machines that people have, on the strict runtime: several devices, old ones, drivers that are too old, no memory.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/backend/make_backend.h"
#include "engine/cuda/host/cuda.h"
#include "engine/cuda/host/products.h"
#include "tests/support/self_test.h"
#include "tests/support/strict/strict.h"
#include "tests/support/temp_folder.h"

namespace baton::test::devices_test {
namespace {

using Catch::Contains;

TEST_CASE("devices that cannot be used are refused with what is missing") {
  strict::restart({.driver = cudaErrorInsufficientDriver, .driver_version = 12020});
  REQUIRE_THROWS_WITH(make_cuda_backend(0),
                      Contains("cudaErrorInsufficientDriver; driver for CUDA 12.2, runtime 13.0"));
  strict::restart({.driver = cudaErrorInsufficientDriver, .driver_version = 0});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("no driver, runtime 13.0"));
  strict::restart({.devices = {{.image = false}}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("this build's kernels cannot run on compute capability 8"));
  strict::restart({.devices = {}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("no NVIDIA driver or no GPU") && Contains("cudaErrorNoDevice"));
  strict::restart({.devices = {{.major = 7, .minor = 5}}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("expected compute capability 8.0 or higher, found 7"));
  strict::restart({.devices = {{.pools = false}}});
  REQUIRE_THROWS_WITH(make_cuda_backend(0), Contains("expected a driver with memory pools"));
  strict::restart();
  REQUIRE_THROWS_WITH(make_cuda_backend(1), Contains("unknown device 'cuda:1': this machine has 1 GPU"));
}

TEST_CASE("pinned memory that the machine does not have is an error with its size") {
  strict::restart({.pinned = std::size_t{20} << 20});
  const auto backend = make_cuda_backend(0);
  REQUIRE_THROWS_WITH(backend->allocate_host(std::size_t{8} << 20),
                      Contains("cannot pin 8388608 bytes of host memory") && Contains("cudaErrorMemoryAllocation"));
  REQUIRE(backend->allocate_host(1000).bytes() == 1000);
}

TEST_CASE("a device that computes nothing fails the self-test, and so does one whose calls fail") {
  strict::restart({.runs_work = false});
  std::size_t parts = 0;
  // Steps that are repeated are compared with the device's own, which are whatever pinned memory holds.
  CHECK(self_test_problems(*make_cuda_backend(0), parts).size() >= kSelfTestParts - 1);
  CHECK(parts == kSelfTestParts);
  strict::restart();
  const auto device = make_cuda_backend(0);
  strict::fail_call(strict::call_count() + 20, cudaErrorIllegalAddress, true);
  parts = 0;
  const auto problems = self_test_problems(*device, parts);
  REQUIRE_FALSE(problems.empty());
  CHECK_THAT(problems.back(), Contains("cudaErrorIllegalAddress"));
  CHECK(parts == kSelfTestParts);
}

TEST_CASE("cuBLASLt is looked for next to the program and in a Python environment") {
  const TempFolder folder;
  const auto make = [&](const std::string& name) {
    const auto path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "no library";
    return path.string();
  };
  const std::string next_to = make("app/lib/libcublasLt.so.13");
  const std::string of_pip = make("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  const std::string program = (folder.path() / "app/bin/program").string(),
                    environment = (folder.path() / "venv").string();
  auto files = cuda::cublas_lt_files(program, environment.c_str());
  std::erase_if(files, [](const std::string& file) { return file.starts_with("/usr/local"); });
  CHECK(files == std::vector<std::string>{"libcublasLt.so.13", next_to, of_pip});
  files = cuda::cublas_lt_files("/nowhere/bin/program", nullptr);
  std::erase_if(files, [](const std::string& file) { return file.starts_with("/usr/local"); });
  CHECK(files == std::vector<std::string>{"libcublasLt.so.13"});
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
}  // namespace baton::test::devices_test
