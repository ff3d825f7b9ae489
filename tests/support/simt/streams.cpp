// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simt/streams.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace baton::test {

Streams& streams() {
  static Streams one;
  return one;
}

void Streams::restart(std::uint32_t seed, Eagerness eagerness) {
  random_.seed(seed);
  eagerness_ = eagerness;
}

void Streams::give(SimulatedStream& stream, SimulatedStream::Work work) {
  stream.queue.push_back(std::move(work));
  for (std::uint32_t left = eagerness_ == Eagerness::some ? random_() % 4 : 0; left > 0; --left) run_one();
}

bool Streams::run_one() {
  std::vector<SimulatedStream*> able;
  for (SimulatedStream* stream : all) {
    if (stream->queue.empty()) continue;
    const Reached& behind = stream->queue.front().behind;
    if (behind == nullptr || *behind) able.push_back(stream);
  }
  if (able.empty()) return false;
  SimulatedStream& stream = *able[random_() % able.size()];
  const SimulatedStream::Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.run) work.run();
  if (work.reaches) *work.reaches = true;
  return true;
}

void Streams::run_until(const std::function<bool()>& then) {
  while (!then()) {
    if (run_one()) continue;
    std::fprintf(stderr, "streams: each waits for another\n");
    std::abort();
  }
}

}  // namespace baton::test

using baton::test::streams;

const char* cudaGetErrorName(cudaError_t code) { return code == cudaSuccess ? "cudaSuccess" : "an error"; }
const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new baton::test::SimulatedStream;
  streams().all.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {  // what it was given is done first
  cudaStreamSynchronize(stream);
  std::erase(streams().all, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  streams().run_until([&] { return stream->queue.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
  streams().give(*stream, {nullptr, event->reached, nullptr});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new baton::test::SimulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->reached = std::make_shared<bool>(false);
  streams().give(*stream, {nullptr, nullptr, event->reached});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->reached == nullptr || *event->reached ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  streams().run_until([reached = event->reached] { return reached == nullptr || *reached; });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  streams().give(*stream, {[=] { std::memcpy(to, from, bytes); }, nullptr, nullptr});
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  streams().give(*stream, {[=] { streams().on_free(memory); }, nullptr, nullptr});
  return cudaSuccess;
}
