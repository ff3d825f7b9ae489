// SPDX-License-Identifier: Apache-2.0
// Entry points of the CUDA runtime about errors, devices and memory. The errors of each are those that the toolkit's
// documentation lists for it.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "tests/support/simt/shadow.h"
#include "tests/support/strict/core.h"

using namespace baton::test::strict;  // NOLINT: entry points have no namespace

namespace {

struct Named {
  cudaError_t code;
  const char* name;
  const char* text;
};
#define NAMED(code, text) \
  Named { code, #code, text }
constexpr Named kErrors[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInitializationError, "initialization error"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    NAMED(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    NAMED(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    NAMED(cudaErrorUnknown, "unknown error"),
};
#undef NAMED

const Named& named(cudaError_t error) {
  for (const Named& one : kErrors) {
    if (one.code == error) return one;
  }
  return kErrors[std::size(kErrors) - 1];
}

Device* device_at(int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= core().devices.size()) return nullptr;
  return &core().devices[static_cast<std::size_t>(index)];
}
Device& selected() { return core().devices[static_cast<std::size_t>(caller().device)]; }

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return named(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return named(error).text; }
cudaError_t cudaGetLastError() {
  const std::lock_guard lock(core().mutex);
  return std::exchange(caller().last_error, core().sticky);
}

cudaError_t cudaDriverGetVersion(int* version) {
  return called("cudaDriverGetVersion", Call::plain, {cudaErrorInvalidValue}, [&] {
    *version = core().setup.driver_version;
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return called("cudaRuntimeGetVersion", Call::plain, {cudaErrorInvalidValue}, [&] {
    *version = 13000;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return called("cudaGetDeviceCount", Call::plain, {cudaErrorNoDevice, cudaErrorInsufficientDriver}, [&] {
    *count = static_cast<int>(core().devices.size());
    if (core().setup.driver != cudaSuccess) return core().setup.driver;
    return core().devices.empty() ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return called("cudaSetDevice", Call::plain, {cudaErrorInvalidDevice, cudaErrorDevicesUnavailable}, [&] {
    if (device_at(device) == nullptr) return cudaErrorInvalidDevice;
    caller().device = device;
    caller().selected = true;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return called("cudaDeviceGetAttribute", Call::plain, {cudaErrorInvalidDevice, cudaErrorInvalidValue}, [&] {
    const Device* one = device_at(device);
    if (one == nullptr) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = one->spec.multiprocessors;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = one->spec.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = one->spec.minor;
        return cudaSuccess;
      case cudaDevAttrMemoryPoolsSupported:
        *value = one->spec.pools ? 1 : 0;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return called("cudaGetDeviceProperties", Call::plain, {cudaErrorInvalidDevice}, [&] {
    const Device* one = device_at(device);
    if (one == nullptr) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "strict device");
    properties->totalGlobalMem = one->spec.memory;
    properties->major = one->spec.major;
    properties->minor = one->spec.minor;
    properties->multiProcessorCount = one->spec.multiprocessors;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return called("cudaDeviceGetDefaultMemPool", Call::plain,
                {cudaErrorInvalidDevice, cudaErrorInvalidValue, cudaErrorNotSupported}, [&] {
                  Device* one = device_at(device);
                  if (one == nullptr) return cudaErrorInvalidDevice;
                  if (!one->spec.pools) return cudaErrorNotSupported;
                  *pool = &one->pool;
                  return cudaSuccess;
                });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return called("cudaMemPoolSetAttribute", Call::plain, {cudaErrorInvalidValue}, [&] {
    if (attribute != cudaMemPoolAttrReleaseThreshold) return cudaErrorInvalidValue;
    pool->threshold = *static_cast<std::uint64_t*>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return called("cudaMemPoolGetAttribute", Call::plain, {cudaErrorInvalidValue}, [&] {
    auto& out = *static_cast<std::uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        out = pool->threshold;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
        out = pool->reserved;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemCurrent:
        out = pool->used;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return called("cudaMemGetInfo", Call::of_device, {cudaErrorInvalidValue, cudaErrorLaunchFailure}, [&] {
    const Device& one = selected();
    *total = one.spec.memory;
    *free = one.spec.memory - std::min<std::size_t>(one.spec.memory, one.used + one.pool.reserved);
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return called("cudaMalloc", Call::not_captured, {cudaErrorInvalidValue, cudaErrorMemoryAllocation}, [&] {
    *pointer = allocate_device(caller().device, bytes, nullptr);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return released("cudaFree", Call::not_captured, {cudaErrorInvalidValue}, [&] {
    if (pointer == nullptr) return cudaSuccess;
    for (CUstream_st* stream : core().streams) {
      if (stream != nullptr && stream->device == caller().device) wait_for(stream->clock);
    }
    return release_device(pointer, nullptr) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  return called("cudaMallocAsync", Call::not_captured,
                {cudaErrorInvalidValue, cudaErrorNotSupported, cudaErrorMemoryAllocation}, [&] {
                  CUstream_st* on = stream_of(stream);
                  if (on == nullptr || bytes == 0) return cudaErrorInvalidValue;
                  *pointer = allocate_device(on->device, bytes, on);
                  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
                });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return released("cudaFreeAsync", Call::of_device, {cudaErrorInvalidValue, cudaErrorNotSupported}, [&] {
    CUstream_st* on = stream_of(stream);
    if (on == nullptr) return cudaErrorInvalidValue;
    if (on->capture != nullptr) report("memory that a capture did not allocate is released in it");
    return release_device(pointer, on) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return called("cudaMallocHost", Call::not_captured, {cudaErrorInvalidValue, cudaErrorMemoryAllocation}, [&] {
    *pointer = allocate_pinned(bytes);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* pointer) {
  return released("cudaFreeHost", Call::not_captured, {cudaErrorInvalidValue},
                  [&] { return release_pinned(pointer) ? cudaSuccess : cudaErrorInvalidValue; });
}

namespace {

/// Queues a copy on a stream. `host_is_pinned`: false for copies that the host waits for.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, CUstream_st* stream,
                 bool host_is_pinned) {
  const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
  if (bytes == 0) return cudaSuccess;
  if (from_device != (device_of(from) >= 0) || to_device != (device_of(to) >= 0))
    return cudaErrorInvalidMemcpyDirection;
  const char* name = kind == cudaMemcpyHostToDevice   ? "a copy to the device"
                     : kind == cudaMemcpyDeviceToHost ? "a copy to the host"
                                                      : "a copy within the device";
  if ((from_device && !is_allocated(from, bytes)) || (to_device && !is_allocated(to, bytes)))
    report(fmt::format("{}: {} bytes that no allocation holds, or that were released", name, bytes));
  const bool of_host = !from_device || !to_device;
  if (of_host && host_is_pinned) {
    if (stream->capture != nullptr) {
      stream->invalidated = true;
      report(fmt::format("{} in a capture: it would read or write the same memory at every replay", name));
      return cudaErrorStreamCaptureUnsupported;
    }
    if (!is_pinned(from_device ? to : from, bytes))
      report(fmt::format("{} of host memory that is not pinned: it is not asynchronous", name));
  }
  const bool is_used =
      of_host && host_is_pinned && begin_pinned_use(from_device ? to : from, bytes, !from_device, *stream);
  std::shared_ptr<std::vector<char>> sent;  // what the host has now: it must have the same when the copy runs
  if (!from_device && !is_used && core().setup.runs_work)
    sent = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  give(stream, name, 5 + static_cast<double>(bytes) / 10000, [=](const Work& work) {
    if (from_device) touch(work, from, bytes, Access::read);
    if (to_device) touch(work, to, bytes, Access::write);
    if (!core().setup.runs_work) return;
    if (!from_device) {
      if (sent != nullptr && std::memcmp(sent->data(), from, bytes) != 0)
        report(fmt::format("{}: the host changed its memory before the copy ran", name));
      baton::simt::shadow().written(to, bytes);
      return with_open_memory(to, bytes, [&] { std::memcpy(to, from, bytes); });
    }
    with_open_memory(from, bytes, [&] {
      if (!to_device) {
        std::memcpy(to, from, bytes);
      } else {
        baton::simt::shadow().copied(to, from, bytes);
        std::vector<char> between(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        with_open_memory(to, bytes, [&] { std::memcpy(to, between.data(), bytes); });
      }
    });
  });
  return cudaSuccess;
}

cudaError_t set(void* pointer, int value, std::size_t bytes, CUstream_st* stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_allocated(pointer, bytes)) {
    report(fmt::format("memset: {} bytes that no allocation holds, or that were released", bytes));
    return cudaErrorInvalidValue;
  }
  give(stream, "memset", 3 + static_cast<double>(bytes) / 1e6, [=](const Work& work) {
    touch(work, pointer, bytes, Access::write);
    if (!core().setup.runs_work) return;
    baton::simt::shadow().written(pointer, bytes);
    with_open_memory(pointer, bytes, [&] { std::memset(pointer, value, bytes); });
  });
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return called("cudaMemcpy", Call::not_captured, {cudaErrorInvalidValue, cudaErrorInvalidMemcpyDirection}, [&] {
    CUstream_st& stream = selected().legacy;
    const cudaError_t code = copy(to, from, bytes, kind, &stream, false);
    wait_for(stream.clock);
    return code;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return called("cudaMemcpyAsync", Call::of_device, {cudaErrorInvalidValue, cudaErrorInvalidMemcpyDirection}, [&] {
    CUstream_st* on = stream_of(stream);
    return on == nullptr ? cudaErrorInvalidResourceHandle : copy(to, from, bytes, kind, on, true);
  });
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  return called("cudaMemset", Call::not_captured, {cudaErrorInvalidValue},
                [&] { return set(pointer, value, bytes, &selected().legacy); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  return called("cudaMemsetAsync", Call::of_device, {cudaErrorInvalidValue}, [&] {
    CUstream_st* on = stream_of(stream);
    return on == nullptr ? cudaErrorInvalidResourceHandle : set(pointer, value, bytes, on);
  });
}
