// SPDX-License-Identifier: Apache-2.0
// Entry points of the CUDA runtime about streams, events, captures and launches.
#include <fmt/format.h>

#include "tests/support/strict/core.h"
#include "tests/support/strict/launch.h"

using namespace baton::test::strict;  // NOLINT: entry points have no namespace

namespace {

bool exists(cudaEvent_t event) { return core().events.contains(event); }

cudaError_t make_event(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->device = caller().device;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  core().events.insert(*event);
  return cudaSuccess;
}

bool is_complete(const CUevent_st& event) {
  return !event.recorded || core().done[static_cast<std::size_t>(event.stream)] >= event.number;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return called("cudaStreamCreateWithFlags", Call::of_device, {cudaErrorInvalidValue}, [&] {
    if (flags != cudaStreamNonBlocking) {
      report("a stream that waits for the legacy stream, and lets it wait");
      return cudaErrorInvalidValue;
    }
    *stream = new CUstream_st;
    (*stream)->id = static_cast<int>(core().streams.size());
    (*stream)->device = caller().device;
    core().streams.push_back(*stream);
    core().done.push_back(0);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return released("cudaStreamDestroy", Call::of_device, {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle}, [&] {
    if (stream == nullptr || stream_of(stream) == nullptr) {
      report("a stream is destroyed that does not exist");
      return cudaErrorInvalidResourceHandle;
    }
    const Clock host = core().host;  // the host does not wait for what runs still
    wait_for(stream->clock);
    core().host = host;
    if (stream->capture != nullptr) {
      report("a stream is destroyed while it captures");
      delete stream->capture;
    }
    core().streams[static_cast<std::size_t>(stream->id)] = nullptr;
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return called("cudaStreamSynchronize", Call::not_captured, {cudaErrorInvalidResourceHandle}, [&] {
    CUstream_st* on = stream_of(stream);
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (on->capture != nullptr) {
      on->invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    wait_for(on->clock);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return called("cudaStreamWaitEvent", Call::of_device, {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle}, [&] {
    CUstream_st* on = stream_of(stream);
    if (on == nullptr || !exists(event)) return cudaErrorInvalidResourceHandle;
    if ((on->capture != nullptr) != event->captured) {
      if (on->capture != nullptr) on->invalidated = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (!event->recorded || on->capture != nullptr) return cudaSuccess;
    on->clock.join(event->clock);
    give(on, "cudaStreamWaitEvent", 1, [on, ends = event->ends](const Work&) {
      if (!core().setup.marks) on->time = std::max(on->time, *ends);
    });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return called("cudaStreamBeginCapture", Call::of_device, {cudaErrorInvalidValue}, [&] {
    CUstream_st* on = stream_of(stream);
    if (on == nullptr || on->legacy || on->capture != nullptr) return cudaErrorInvalidValue;
    if (core().without_captures > 0) return cudaErrorStreamCaptureUnsupported;
    on->capture = new CUgraph_st;
    on->mode = mode;
    on->capturing_thread = &caller();
    on->invalidated = false;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return released(
      "cudaStreamEndCapture", Call::of_device, {cudaErrorInvalidValue, cudaErrorStreamCaptureWrongThread},
      [&] {
        *graph = nullptr;
        CUstream_st* on = stream_of(stream);
        if (on == nullptr || on->capture == nullptr) return cudaErrorInvalidValue;
        if (on->mode != cudaStreamCaptureModeRelaxed && on->capturing_thread != &caller())
          return cudaErrorStreamCaptureWrongThread;
        const std::unique_ptr<CUgraph_st> made(std::exchange(on->capture, nullptr));
        if (on->invalidated || core().sticky != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
        *graph = new CUgraph_st(*made);
        core().graphs.insert(*graph);
        return cudaSuccess;
      },
      [&] {
        if (*graph != nullptr) core().graphs.erase(*graph);
        delete *graph;
        *graph = nullptr;
      });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return called("cudaEventCreate", Call::of_device,
                {cudaErrorInvalidValue, cudaErrorLaunchFailure, cudaErrorMemoryAllocation},
                [&] { return make_event(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return called("cudaEventCreateWithFlags", Call::of_device,
                {cudaErrorInvalidValue, cudaErrorLaunchFailure, cudaErrorMemoryAllocation},
                [&] { return make_event(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return released("cudaEventDestroy", Call::of_device,
                  {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorLaunchFailure}, [&] {
                    if (!exists(event)) {
                      report("an event is destroyed that does not exist");
                      return cudaErrorInvalidResourceHandle;
                    }
                    core().events.erase(event);
                    delete event;
                    return cudaSuccess;
                  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return called("cudaEventRecord", Call::of_device,
                {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorLaunchFailure}, [&] {
                  CUstream_st* on = stream_of(stream);
                  if (on == nullptr || !exists(event) || event->device != on->device)
                    return cudaErrorInvalidResourceHandle;
                  event->captured = on->capture != nullptr;
                  if (event->captured) return cudaSuccess;
                  event->recorded = true;
                  event->ends = std::make_shared<double>(0.0);
                  give(on, "cudaEventRecord", 1, nullptr, event->timed ? event->ends : nullptr);
                  event->clock = on->clock;
                  event->stream = on->id;
                  event->number = on->last;
                  return cudaSuccess;
                });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return called("cudaEventQuery", Call::not_captured,
                {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorLaunchFailure}, [&] {
                  if (!exists(event)) return cudaErrorInvalidResourceHandle;
                  run_some();
                  if (!is_complete(*event)) return cudaErrorNotReady;
                  core().host.join(event->clock);
                  return cudaSuccess;
                });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return called("cudaEventSynchronize", Call::not_captured,
                {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorLaunchFailure}, [&] {
                  if (!exists(event)) return cudaErrorInvalidResourceHandle;
                  wait_for(event->clock);
                  return cudaSuccess;
                });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return called("cudaEventElapsedTime", Call::of_device,
                {cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorLaunchFailure, cudaErrorUnknown}, [&] {
                  for (const cudaEvent_t event : {begin, end}) {
                    if (!exists(event) || !event->timed || !event->recorded) return cudaErrorInvalidResourceHandle;
                    if (!is_complete(*event)) return cudaErrorNotReady;
                  }
                  *milliseconds = static_cast<float>((*end->ends - *begin->ends) / 1000);
                  return cudaSuccess;
                });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long /*flags*/) {
  return called("cudaGraphInstantiate", Call::of_device, {cudaErrorInvalidValue}, [&] {
    if (!core().graphs.contains(graph)) return cudaErrorInvalidValue;
    *executable = new CUgraphExec_st{caller().device, std::make_shared<const std::vector<Work>>(graph->work)};
    core().executables.insert(*executable);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return called("cudaGraphLaunch", Call::of_device, {cudaErrorInvalidValue}, [&] {
    CUstream_st* on = stream_of(stream);
    if (on == nullptr || !core().executables.contains(executable)) return cudaErrorInvalidValue;
    if (executable->device != on->device) return cudaErrorInvalidResourceHandle;
    double all = 2;
    for (const Work& node : *executable->work) all += node.microseconds;
    give(on, "cudaGraphLaunch", all, [nodes = executable->work](const Work& launch) {
      for (const Work& node : *nodes) {
        Work one = launch;
        one.name = node.name;
        node.run(one);
      }
    });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return released("cudaGraphExecDestroy", Call::of_device, {cudaErrorInvalidValue}, [&] {
    if (core().executables.erase(executable) == 0) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return released("cudaGraphDestroy", Call::of_device, {cudaErrorInvalidValue}, [&] {
    if (core().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return called("cudaFuncSetAttribute", Call::of_device, {cudaErrorInvalidDeviceFunction, cudaErrorInvalidValue}, [&] {
    Device& on = core().devices[static_cast<std::size_t>(caller().device)];
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > max_shared_bytes(on.spec))
      return cudaErrorInvalidValue;
    on.shared_bytes[function] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* /*function*/) {
  return called("cudaFuncGetName", Call::plain, {cudaErrorInvalidValue, cudaErrorInvalidDeviceFunction}, [&] {
    *name = "_Z11some_kerneli";
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*function*/) {
  return called("cudaFuncGetAttributes", Call::of_device, {cudaErrorInvalidDeviceFunction}, [&] {
    *attributes = {};
    return core().devices[static_cast<std::size_t>(caller().device)].spec.image ? cudaSuccess
                                                                                : cudaErrorNoKernelImageForDevice;
  });
}

namespace baton::test::strict {

std::size_t max_shared_bytes(const DeviceSpec& spec) {
  const int version = 10 * spec.major + spec.minor;  // the programming guide's table of compute capabilities
  const std::size_t kib = version == 80 || version == 87 ? 163 : version == 90 || version == 100 ? 227 : 99;
  return kib * 1024;
}

void launch_kernel(void* stream, const Launch& launch, std::function<void()> body) {
  called("cudaLaunchKernel", Call::of_device,
         {cudaErrorInvalidDeviceFunction, cudaErrorInvalidConfiguration, cudaErrorLaunchOutOfResources,
          cudaErrorNoKernelImageForDevice},
         [&] {
           CUstream_st* on = stream_of(static_cast<cudaStream_t>(stream));
           if (on == nullptr || on->device != caller().device) return cudaErrorInvalidResourceHandle;
           const Device& device = core().devices[static_cast<std::size_t>(caller().device)];
           const auto asked = device.shared_bytes.find(launch.kernel);
           const std::size_t limit = std::max<std::size_t>(
               std::size_t{48} << 10, asked == device.shared_bytes.end() ? 0 : static_cast<std::size_t>(asked->second));
           if (launch.shared_bytes > limit) {
             report(fmt::format("a launch with {} bytes of shared memory, where {} are allowed", launch.shared_bytes,
                                limit));
             return cudaErrorInvalidValue;
           }
           const double blocks = static_cast<double>(launch.blocks);
           give(on, "a kernel", 4 + blocks * launch.threads / 20000, [body = std::move(body)](const Work& work) {
             if (core().setup.runs_work) run_kernel(work, body);
           });
           return cudaSuccess;
         });
}

}  // namespace baton::test::strict
