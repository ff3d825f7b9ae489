// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that engine/cuda/host/transfers.cpp calls, over streams of the test's own: what is given
// to them runs late and in any order that events allow (streams.h). In no build that has the real one.
#pragma once

#include <cstddef>

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

namespace baton::test {
struct SimulatedStream;
struct SimulatedEvent;
}  // namespace baton::test
using cudaStream_t = baton::test::SimulatedStream*;
using cudaEvent_t = baton::test::SimulatedEvent*;

const char* cudaGetErrorName(cudaError_t code);
const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetLastError();
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
