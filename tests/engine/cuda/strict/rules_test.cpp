// SPDX-License-Identifier: Apache-2.0
// The strict runtime itself: every rule, broken on purpose, is reported; and what is allowed is not.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "engine/cuda/kernels/simt.cuh"
#include "tests/support/strict/launch.h"
#include "tests/support/strict/strict.h"

namespace baton::test::rules_test {
namespace {

void write_one(float* out) { out[threadIdx.x] = 1.0f; }
void read_one(const float* in, float* out) { out[0] = in[0]; }

constexpr std::size_t kBytes = 3 * 4096;  // whole pages: kernels are seen by page

/// Two streams, an event, memory of a device and of the host.
struct Objects {
  Objects() {
    cudaSetDevice(0);
    for (cudaStream_t* stream : {&one, &two}) cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMallocAsync(&device, kBytes, one);
    cudaMallocHost(&host, kBytes);
    cudaStreamSynchronize(one);
  }
  ~Objects() {
    for (const cudaStream_t stream : {one, two}) cudaStreamSynchronize(stream);
    if (device != nullptr) cudaFreeAsync(device, one);
    if (host != nullptr) cudaFreeHost(host);
    cudaEventDestroy(event);
    for (const cudaStream_t stream : {one, two}) cudaStreamDestroy(stream);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  float* numbers() const { return static_cast<float*>(device); }
  void write(cudaStream_t stream) const { launch(cuda::Stream{stream}, dim3(1), 1, 0, write_one, numbers()); }
  cudaError_t upload(cudaStream_t stream) const {
    return cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream);
  }
  cudaStream_t one = nullptr, two = nullptr;
  cudaEvent_t event = nullptr;
  void* device = nullptr;
  void* host = nullptr;
};

/// What is reported of a use of the objects, once all of it has run.
std::string reported(const std::function<void(Objects&)>& use) {
  std::string all;
  {
    Objects objects;
    strict::take_reports();
    use(objects);
    for (const cudaStream_t stream : {objects.one, objects.two}) cudaStreamSynchronize(stream);
    cudaGetLastError();
    for (const std::string& one : strict::take_reports()) all += one + "\n";
  }
  for (const std::string& one : strict::take_reports()) all += one + "\n";
  return all;
}

using Catch::Contains;

TEST_CASE("strict runtime: work in order is not reported") {
  CHECK(reported([](Objects& o) {
          o.upload(o.one);
          o.write(o.one);
          cudaEventRecord(o.event, o.one);
          cudaStreamWaitEvent(o.two, o.event);
          cudaMemcpyAsync(o.host, o.device, kBytes, cudaMemcpyDeviceToHost, o.two);
          cudaStreamSynchronize(o.two);
          CHECK(*static_cast<float*>(o.host) == 1.0f);
          std::memset(o.host, 3, kBytes);
          o.upload(o.one);
          cudaFreeAsync(std::exchange(o.device, nullptr), o.one);
        }).empty());
}

TEST_CASE("strict runtime: two streams without an event") {
  const auto race = Contains("no event orders them");
  CHECK_THAT(reported([](Objects& o) {
               o.upload(o.one);
               o.write(o.two);
             }),
             race);
  CHECK_THAT(reported([](Objects& o) {
               o.write(o.one);
               cudaMemcpyAsync(o.host, o.device, kBytes, cudaMemcpyDeviceToHost, o.two);
             }),
             race);
  CHECK_THAT(reported([](Objects& o) {  // the event is older than what it should follow
               cudaEventRecord(o.event, o.one);
               o.write(o.one);
               cudaStreamWaitEvent(o.two, o.event);
               o.upload(o.two);
             }),
             race);
  CHECK_THAT(reported([](Objects& o) {
               cudaMemcpyAsync(o.host, o.device, kBytes, cudaMemcpyDeviceToHost, o.one);
               o.upload(o.two);
             }),
             Contains("two copies use the same pinned memory"));
}

TEST_CASE("strict runtime: memory before its allocation and after its release") {
  CHECK_THAT(reported([](Objects& o) {
               void* fresh = nullptr;
               cudaMallocAsync(&fresh, kBytes, o.one);
               cudaMemsetAsync(fresh, 0, kBytes, o.two);
               cudaStreamSynchronize(o.two);
               cudaStreamSynchronize(o.one);
               cudaFreeAsync(fresh, o.one);
             }),
             Contains("before its allocation"));
  CHECK_THAT(reported([](Objects& o) {
               cudaFreeAsync(o.device, o.one);
               o.upload(o.one);
               o.device = nullptr;
             }),
             Contains("that were released"));
  CHECK_THAT(reported([](Objects& o) {
               cudaEventRecord(o.event, o.one);
               cudaStreamWaitEvent(o.two, o.event);
               o.write(o.two);
               cudaFreeAsync(std::exchange(o.device, nullptr), o.one);
             }),
             Contains("released on stream") || Contains("uses memory that cudaFreeAsync released"));
  CHECK_THAT(reported([](Objects& o) {
               cudaFreeAsync(o.device, o.one);
               cudaFreeAsync(std::exchange(o.device, nullptr), o.one);
             }),
             Contains("released twice"));
}

TEST_CASE("strict runtime: memory of the host") {
  CHECK_THAT(reported([](Objects& o) {
               o.upload(o.one);
               std::memset(o.host, 7, kBytes);
             }),
             Contains("the host changed its memory before the copy ran"));
  CHECK_THAT(reported([](Objects& o) {
               const std::vector<char> plain(kBytes);
               cudaMemcpyAsync(o.device, plain.data(), kBytes, cudaMemcpyHostToDevice, o.one);
               cudaStreamSynchronize(o.one);
             }),
             Contains("not pinned"));
  CHECK_THAT(reported([](Objects& o) {
               o.upload(o.one);
               cudaFreeHost(std::exchange(o.host, nullptr));
             }),
             Contains("released while a copy may use it"));
  Objects o;  // what a copy brings is not there before somebody waits
  o.write(o.one);
  cudaMemcpyAsync(o.host, o.device, kBytes, cudaMemcpyDeviceToHost, o.one);
  CHECK_FALSE(*static_cast<float*>(o.host) == 1.0f);
  cudaStreamSynchronize(o.one);
  CHECK(*static_cast<float*>(o.host) == 1.0f);
}

TEST_CASE("strict runtime: copies that have the wrong direction or size") {
  Objects o;
  CHECK(cudaMemcpyAsync(o.device, o.host, 8, cudaMemcpyDeviceToHost, o.one) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_THAT(reported([](Objects& all) {
               cudaMemcpyAsync(static_cast<char*>(all.device) + 8, all.host, kBytes, cudaMemcpyHostToDevice, all.one);
             }),
             Contains("that no allocation holds"));
}

TEST_CASE("strict runtime: captures") {
  const auto capture = [](Objects& o, const std::function<void()>& body) {
    cudaStreamBeginCapture(o.two, cudaStreamCaptureModeThreadLocal);
    body();
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(o.two, &graph);
    cudaGraphExec_t executable = nullptr;
    if (code == cudaSuccess) {
      CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
      cudaGraphDestroy(graph);
      cudaGraphLaunch(executable, o.one);
      cudaGraphExecDestroy(executable);
    }
    cudaGetLastError();
    return code;
  };
  CHECK(reported([&](Objects& o) { CHECK(capture(o, [&] { o.write(o.two); }) == cudaSuccess); }).empty());
  Objects o;
  CHECK(capture(o, [&] { cudaStreamSynchronize(o.two); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture(o, [&] { cudaEventQuery(o.event); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture(o, [&] {
          void* memory = nullptr;
          CHECK(cudaMallocAsync(&memory, 8, o.one) == cudaErrorStreamCaptureUnsupported);
        }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture(o, [&] {  // another thread may
          std::thread([&] {
            cudaSetDevice(0);
            cudaStreamSynchronize(o.one);
          }).join();
        }) == cudaSuccess);
  CHECK(capture(o, [&] {
          cudaEventRecord(o.event, o.one);
          CHECK(cudaStreamWaitEvent(o.two, o.event) == cudaErrorStreamCaptureIsolation);
        }) == cudaErrorStreamCaptureInvalidated);
  CHECK_THAT(reported([&](Objects& all) { capture(all, [&] { all.upload(all.two); }); }), Contains("in a capture"));
}

TEST_CASE("strict runtime: limits of launches, per device and kernel") {
  strict::restart({.devices = {{}, {}}});
  const auto code_of = [](cudaStream_t stream, std::size_t shared) {
    strict::Launch all{reinterpret_cast<const void*>(&write_one), 1, 1, shared};
    strict::launch_kernel(stream, all, [] {});
    return cudaGetLastError();
  };
  Objects o;
  CHECK(code_of(o.one, 48 << 10) == cudaSuccess);
  CHECK(code_of(o.one, (48 << 10) + 1) == cudaErrorInvalidValue);
  CHECK_THAT(strict::take_reports().at(0), Contains("49152 are allowed"));
  CHECK(cudaFuncSetAttribute(write_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFuncSetAttribute(write_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) == cudaSuccess);
  CHECK(code_of(o.one, 64 << 10) == cudaSuccess);
  cudaSetDevice(1);
  CHECK(code_of(o.one, 0) == cudaErrorInvalidResourceHandle);  // a stream of the other device
  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  CHECK(code_of(other, 64 << 10) == cudaErrorInvalidValue);  // allowed on the other device alone
  strict::take_reports();
  CHECK(cudaEventRecord(o.event, other) == cudaErrorInvalidResourceHandle);
  cudaStreamDestroy(other);
  cudaSetDevice(0);
}

TEST_CASE("strict runtime: threads that have not selected a device") {
  Objects o;
  std::thread([&] { cudaEventQuery(o.event); }).join();
  CHECK_THAT(strict::take_reports().at(0), Contains("cudaEventQuery: the thread has not selected a device"));
}

TEST_CASE("strict runtime: kernels that leave their memory, and errors that stay") {
  Objects o;
  launch(cuda::Stream{o.one}, dim3(1), 1, 0, read_one, static_cast<const float*>(o.numbers()), o.numbers());
  cudaStreamSynchronize(o.one);
  CHECK(strict::take_reports().empty());
  void* small = nullptr;
  cudaMallocAsync(&small, 40, o.one);
  launch(cuda::Stream{o.one}, dim3(1), 32, 0, write_one, static_cast<float*>(small));
  cudaFreeAsync(small, o.one);
  cudaStreamSynchronize(o.one);
  CHECK_THAT(strict::take_reports().at(0), Contains("past its memory"));
  strict::fail_call(strict::call_count() + 1, cudaErrorIllegalAddress, true);
  CHECK(cudaStreamSynchronize(o.one) == cudaErrorIllegalAddress);
  CHECK(cudaEventQuery(o.event) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
}

void fail_at_once(int) { throw std::runtime_error("out of its memory"); }

TEST_CASE("an error of a kernel is reported by its own launch when launches wait", "[sync]") {
  const bool waits = cuda::waits_for_kernels();  // BATON_CUDA_SYNC=1
  Objects o;
  const auto run = [&] { launch(cuda::Stream{o.one}, dim3(1), 1, 0, fail_at_once, 1); };
  if (waits) {
    REQUIRE_THROWS_WITH(run(), Contains("kernel some_kernel(int) failed with cudaErrorLaunchFailure"));
  } else {
    REQUIRE_NOTHROW(run());
    CHECK(cudaStreamSynchronize(o.one) == cudaErrorLaunchFailure);
  }
  const auto said = strict::take_reports();
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("out of its memory"));
}

TEST_CASE("strict runtime: what was never destroyed is reported") {
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  void* memory = nullptr;
  cudaMallocAsync(&memory, 8, stream);
  const auto left = strict::take_reports_and_leaks();
  REQUIRE(left.size() == 2);
  CHECK_THAT(left[0], Contains("1 allocations of 8 bytes of device memory were never released"));
  CHECK_THAT(left[1], Contains("1 streams were never destroyed"));
  cudaFreeAsync(memory, stream);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace baton::test::rules_test
