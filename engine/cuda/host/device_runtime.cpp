// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cxxabi.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/host/check.h"
#include "engine/cuda/host/cuda.h"
#include "engine/cuda/host/products.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {
namespace {

/// Returns "norm_rows<float, true>(...)", or "a kernel" where the runtime does not know its name.
std::string name_of(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return "a kernel";
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                          &std::free);
  return "kernel " + std::string(status == 0 ? plain.get() : mangled);
}

}  // namespace

bool waits_for_kernels() {
  static const bool waits = is_set("BATON_CUDA_SYNC", "1");
  return waits;
}

void check_launch(const void* kernel, Stream stream) {
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    check(code, ("the launch of " + name_of(kernel)).c_str(), __FILE__, __LINE__);
  if (!waits_for_kernels()) return;
  const std::string name = name_of(kernel);  // after an error of the kernel, no call works
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native)), name.c_str(), __FILE__, __LINE__);
}

// The implementation of Runtime for a device: the CUDA runtime library (linked in; it finds the driver at run time) and
// cuBLASLt (loaded at run time). Memory comes from the device's stream-ordered pool, which keeps released memory.

// Transfers: asynchronous copies between pinned host memory and device memory on an upload and a download stream, and
// their order relative to the main stream and to the release of memory.

class StreamOwner {
 public:
  StreamOwner();
  ~StreamOwner() { ignore(cudaStreamDestroy(stream_)); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventOwner {
 public:
  explicit EventOwner(unsigned flags = cudaEventDisableTiming);
  ~EventOwner() { ignore(cudaEventDestroy(event_)); }
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Threads: one caller at a time, except release. Errors: BackendError.
class Transfers {
 public:
  explicit Transfers(cudaStream_t main) : main_(main) {}

  // See Runtime; queue() is Runtime::transfer.
  TransferId queue(const Transfer& transfer);
  void follow(TransferId transfer);
  void wait_for(TransferId transfer);
  void synchronize();

  /// Returns memory to the device's pool, after all work queued so far on the main stream and after the transfers that
  /// use the memory. Threads: any.
  void release(void* memory) noexcept;

 private:
  /// A transfer that is not known to be complete.
  struct Pending {
    TransferId id = 0;
    bool upload = true;
    void* memory = nullptr;  // null: released, or the main stream waits for the transfer
    std::unique_ptr<EventOwner> complete;
  };
  cudaStream_t stream_of(bool upload) const { return (upload ? upload_stream_ : download_stream_).get(); }
  const Pending* find(TransferId id) const;
  void recycle_events();

  cudaStream_t main_;
  StreamOwner upload_stream_, download_stream_;
  EventOwner main_point_;  // the end of the main stream's work before a transfer
  std::mutex mutex_;
  std::deque<Pending> pending_;                     // guarded by mutex_
  std::vector<std::unique_ptr<EventOwner>> spare_;  // guarded by mutex_
  TransferId last_ = 0;
};

StreamOwner::StreamOwner() { BATON_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

EventOwner::EventOwner(unsigned flags) { BATON_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags)); }

TransferId Transfers::queue(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  recycle_events();
  if (spare_.empty()) spare_.push_back(std::make_unique<EventOwner>());
  const cudaStream_t stream = stream_of(transfer.upload);
  // A later upload into a block of memory need not wait again for the work that the first one waited for.
  const bool begun = transfer.upload && std::ranges::any_of(pending_, [&](const Pending& one) {
                       return one.upload && one.memory == transfer.memory;
                     });
  if (!begun) {
    BATON_CUDA_CHECK(cudaEventRecord(main_point_.get(), main_));
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, main_point_.get()));
  }
  if (const Pending* before = find(transfer.after); before != nullptr && before->upload != transfer.upload)
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, before->complete->get()));
  BATON_CUDA_CHECK(cudaMemcpyAsync(transfer.upload ? transfer.device : transfer.host,
                                   transfer.upload ? transfer.host : transfer.device, transfer.bytes,
                                   transfer.upload ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
  try {
    BATON_CUDA_CHECK(cudaEventRecord(spare_.back()->get(), stream));
  } catch (...) {  // nothing could wait for the copy: it must not outlive the call
    ignore(cudaStreamSynchronize(stream));
    throw;
  }
  pending_.push_back({++last_, transfer.upload, transfer.memory, std::move(spare_.back())});
  spare_.pop_back();
  return last_;
}

void Transfers::follow(TransferId transfer) {
  const std::lock_guard lock(mutex_);
  const Pending* found = find(transfer);
  if (found == nullptr) return;
  BATON_CUDA_CHECK(cudaStreamWaitEvent(main_, found->complete->get()));
  for (Pending& one : pending_) {
    if (one.upload == found->upload && one.id <= transfer) one.memory = nullptr;
  }
}

void Transfers::wait_for(TransferId transfer) {
  cudaEvent_t complete = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const Pending* found = find(transfer)) complete = found->complete->get();
  }
  // Without the lock, so that release() need not wait: only queue() recycles events, and its caller is here.
  if (complete != nullptr) BATON_CUDA_CHECK(cudaEventSynchronize(complete));
}

void Transfers::synchronize() {
  for (const bool upload : {true, false}) BATON_CUDA_CHECK(cudaStreamSynchronize(stream_of(upload)));
}

void Transfers::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto is_of = [&](const Pending& one) { return one.memory == memory; };
  const auto newest = std::find_if(pending_.rbegin(), pending_.rend(), is_of);
  if (newest == pending_.rend()) {
    ignore(cudaFreeAsync(memory, main_));
    return;
  }
  const cudaStream_t last = stream_of(newest->upload);
  ignore(cudaEventRecord(main_point_.get(), main_));
  ignore(cudaStreamWaitEvent(last, main_point_.get()));
  for (Pending& one : pending_) {
    if (is_of(one)) one.memory = nullptr;  // another block may get its address
  }
  ignore(cudaFreeAsync(memory, last));
}

const Transfers::Pending* Transfers::find(TransferId id) const {
  const auto found = std::ranges::lower_bound(pending_, id, {}, &Pending::id);
  return found != pending_.end() && found->id == id ? &*found : nullptr;
}

void Transfers::recycle_events() {
  for (Pending& one : pending_) {
    if (cudaEventQuery(one.complete->get()) == cudaSuccess) spare_.push_back(std::move(one.complete));
  }
  cudaGetLastError();  // resets cudaErrorNotReady of the transfers that are not complete
  std::erase_if(pending_, [](const Pending& one) { return one.complete == nullptr; });
}

}  // namespace baton::cuda

namespace baton {
namespace cuda {
namespace {

constexpr int kMinCapability = 8;  // bf16 tensor cores and asynchronous copies

/// Returns "driver for CUDA 13.0, runtime 13.0". The driver's part is what a user can update.
std::string versions() {
  int driver = 0, runtime = 0;
  ignore(cudaDriverGetVersion(&driver));
  ignore(cudaRuntimeGetVersion(&runtime));
  const auto text = [](int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); };
  return fmt::format("{}, runtime {}", driver == 0 ? "no driver" : "driver for CUDA " + text(driver), text(runtime));
}

/// Returns the reason why a device cannot be used, or nothing.
std::optional<std::string> what_is_missing(int index) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("device 'cuda': no NVIDIA driver or no GPU: {} ({}; {})", cudaGetErrorString(code),
                       cudaGetErrorName(code), versions());
  }
  if (index >= count)
    return fmt::format("unknown device 'cuda:{}': this machine has {} {}", index, count, count == 1 ? "GPU" : "GPUs");
  int capability = 0;
  BATON_CUDA_CHECK(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, index));
  if (capability < kMinCapability) {
    return fmt::format("device 'cuda:{}': expected compute capability {}.0 or higher, found {}", index, kMinCapability,
                       capability);
  }
  // Devices newer than the build's PTX, or older than its images, cannot run a kernel: better said now than at a
  // launch.
  BATON_CUDA_CHECK(cudaSetDevice(index));
  const cudaError_t image = look_up_kernel();
  if (image != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("device 'cuda:{}': this build's kernels cannot run on compute capability {}: {} ({}; {})", index,
                       capability, cudaGetErrorString(image), cudaGetErrorName(image), versions());
  }
  return std::nullopt;
}

class DeviceGraph final : public Graph {
 public:
  explicit DeviceGraph(cudaGraph_t graph) { BATON_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0)); }
  ~DeviceGraph() override { ignore(cudaGraphExecDestroy(executable_)); }
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  cudaGraphExec_t get() const { return executable_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

/// Selects the device on construction. Members of DeviceRuntime that need a selected device are declared after it.
class Selected {
 public:
  explicit Selected(int index) : index_(index) { select(); }
  void select() const { BATON_CUDA_CHECK(cudaSetDevice(index_)); }
  int index() const { return index_; }

 private:
  int index_;
};

class DeviceMarks final : public StreamMarks {
 public:
  DeviceMarks(const Selected& device, cudaStream_t stream) : device_(device), stream_(stream) {}

  void mark() override {
    if (used_ == timed_.size()) timed_.push_back(std::make_unique<EventOwner>(cudaEventDefault));
    device_.select();
    BATON_CUDA_CHECK(cudaEventRecord(timed_[used_]->get(), stream_));
    ++used_;
  }
  std::vector<double> take() override {
    std::vector<double> between;
    if (used_ > 0) BATON_CUDA_CHECK(cudaEventSynchronize(timed_[used_ - 1]->get()));
    for (std::size_t i = 1; i < used_; ++i) {
      float ms = 0.0f;
      BATON_CUDA_CHECK(cudaEventElapsedTime(&ms, timed_[i - 1]->get(), timed_[i]->get()));
      between.push_back(ms);
    }
    used_ = 0;
    return between;
  }

 private:
  const Selected& device_;
  cudaStream_t stream_;
  std::vector<std::unique_ptr<EventOwner>> timed_;
  std::size_t used_ = 0;  // the number of events of timed_ in use
};

class DeviceRuntime final : public Runtime {
 public:
  /// `measured`: the folder for what is measured of products, or an empty path.
  DeviceRuntime(int index, const std::filesystem::path& measured) : device_(index) {
    cudaDeviceProp found{};
    BATON_CUDA_CHECK(cudaGetDeviceProperties(&found, index));
    facts_ = {fmt::format("cuda:{}", index),
              fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.0f} GiB, {}", found.name, found.major,
                          found.minor, found.multiProcessorCount, static_cast<double>(found.totalGlobalMem) / (1 << 30),
                          versions()),
              found.multiProcessorCount};
    int pools = 0;
    BATON_CUDA_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index));
    if (pools == 0) throw BackendError(fmt::format("device '{}': expected a driver with memory pools", facts_.name));
    BATON_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool_, index));
    std::uint64_t keep_all = UINT64_MAX;
    BATON_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all));
    products_.remember(measured, facts_.description);
    workspace_ = allocate(Products::kWorkspaceBytes);
  }
  ~DeviceRuntime() override {
    ignore(cudaStreamSynchronize(stream_.get()));
    release(workspace_);
    ignore(cudaStreamSynchronize(stream_.get()));
  }

  const DeviceFacts& facts() const override { return facts_; }
  std::int64_t free_bytes() const override {
    device_.select();
    std::size_t free = 0, total = 0;
    BATON_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    std::uint64_t reserved = 0, used = 0;  // unused memory of the pool counts as free
    BATON_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
    BATON_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    return static_cast<std::int64_t>(free + reserved - used);
  }
  Stream stream() override {
    device_.select();  // the calling thread may not have selected the device yet
    return {capturing_ ? capture_.get() : stream_.get()};
  }

  void* allocate(std::size_t bytes) override {
    device_.select();
    void* data = nullptr;
    const cudaError_t code = cudaMallocAsync(&data, bytes, stream_.get());
    if (code == cudaErrorMemoryAllocation || code == cudaErrorInvalidValue) {
      cudaGetLastError();
      throw BackendError(fmt::format("device '{}': cannot allocate {} bytes of memory", facts_.name, bytes));
    }
    check(code, "cudaMallocAsync", __FILE__, __LINE__);
    return data;
  }
  void release(void* data) noexcept override {
    ignore(cudaSetDevice(device_.index()));  // any thread releases
    transfers_.release(data);
  }
  void* allocate_pinned(std::size_t bytes) override {
    device_.select();
    void* data = nullptr;
    const cudaError_t code = cudaMallocHost(&data, bytes);
    if (code == cudaErrorMemoryAllocation) {  // a container or the user may be allowed less than the machine has
      cudaGetLastError();
      throw BackendError(fmt::format("device '{}': cannot pin {} bytes of host memory: {} ({})", facts_.name, bytes,
                                     cudaGetErrorString(code), cudaGetErrorName(code)));
    }
    check(code, "cudaMallocHost", __FILE__, __LINE__);
    return data;
  }
  void release_pinned(void* data) noexcept override {
    ignore(cudaSetDevice(device_.index()));
    ignore(cudaFreeHost(data));
  }

  void clear(void* device, std::size_t bytes) override {
    BATON_CUDA_CHECK(cudaMemsetAsync(device, 0, bytes, selected()));
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    BATON_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, selected()));
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    BATON_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, selected()));
  }
  TransferId transfer(const Transfer& transfer) override {
    device_.select();
    return transfers_.queue(transfer);
  }
  void follow(TransferId transfer) override { transfers_.follow(transfer); }
  void wait_for(TransferId transfer) override { transfers_.wait_for(transfer); }
  void multiply(const Product& product) override { products_.multiply(product, workspace_, stream(), !capturing_); }

  // Captures on a stream of its own, so that memory which other threads release meanwhile is not part of the graph.
  void begin_capture() override {
    if (waits_for_kernels()) throw BackendError("BATON_CUDA_SYNC: launches that wait cannot be captured");
    device_.select();
    BATON_CUDA_CHECK(cudaStreamBeginCapture(capture_.get(), cudaStreamCaptureModeThreadLocal));
    capturing_ = true;
  }
  std::unique_ptr<Graph> end_capture() override {
    capturing_ = false;
    cudaGraph_t captured = nullptr;
    BATON_CUDA_CHECK(cudaStreamEndCapture(capture_.get(), &captured));
    const auto destroy = [](cudaGraph_t graph) { ignore(cudaGraphDestroy(graph)); };
    const std::unique_ptr<CUgraph_st, decltype(destroy)> graph(captured, destroy);
    return std::make_unique<DeviceGraph>(graph.get());
  }
  void replay(const Graph& graph) override {
    BATON_CUDA_CHECK(cudaGraphLaunch(static_cast<const DeviceGraph&>(graph).get(), selected()));
  }

  StreamMarks& marks() override { return marks_; }

  void record(int event) override { BATON_CUDA_CHECK(cudaEventRecord(events_[event].get(), selected())); }
  void wait(int event) override { BATON_CUDA_CHECK(cudaEventSynchronize(events_[event].get())); }
  void wait_for_stream() override { BATON_CUDA_CHECK(cudaStreamSynchronize(selected())); }
  void synchronize() override {
    wait_for_stream();
    transfers_.synchronize();
  }

 private:
  cudaStream_t selected() {
    device_.select();
    return stream_.get();
  }

  Selected device_;
  DeviceFacts facts_;
  cudaMemPool_t pool_ = nullptr;  // the device's default pool
  StreamOwner stream_, capture_;
  Transfers transfers_{stream_.get()};
  bool capturing_ = false;
  EventOwner events_[kEvents];
  DeviceMarks marks_{device_, stream_.get()};
  Products products_;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Runtime> make_device_runtime(int device, const std::filesystem::path& measured) {
  return std::make_unique<DeviceRuntime>(device, measured);
}

}  // namespace cuda

bool cuda_present() {
  int count = 0, driver = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) return count > 0;
  cudaGetLastError();
  // The runtime calls a missing driver an old one.
  if (code == cudaErrorInsufficientDriver) return cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  return code != cudaErrorNoDevice;
}

std::unique_ptr<Backend> make_cuda_backend(int device, const std::filesystem::path& measured) {
  if (const auto missing = cuda::what_is_missing(device)) throw BackendError(*missing);
  return cuda::make_backend_over(cuda::make_device_runtime(device, measured));
}

}  // namespace baton
