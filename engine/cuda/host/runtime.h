// SPDX-License-Identifier: Apache-2.0
// Runtime: what the backend's host code needs of a device, without CUDA headers: memory, the main stream, copies,
// matrix products, and transfers that run concurrently with the main stream; and the types that host code and kernels
// share. device_runtime.cpp implements it for a device; the tests have an emulated device, so that all host code also
// runs without a GPU.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/backend/backend.h"

namespace baton::cuda {

/// The bits of a bf16; arithmetic is in float.
struct Bf16 {
  std::uint16_t bits;
};

class LaunchLog;

/// The target of launches: a stream of the device (a cudaStream_t), or, where `log` is not null, only that log.
struct Stream {
  void* native = nullptr;
  LaunchLog* log = nullptr;
};

/// The number of keys of one block in attention's tiles; equals kKeyBlock.
inline constexpr int kTileKeys = 64;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::int64_t blocks_of(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

// LaunchLog: everything that an engine step would do on the device, as bytes: every launch with its kernel, grid and
// arguments, and every product. Two steps with equal logs do the same work in the same memory, so the second can be a
// replay of the first (docs/decisions/cuda.md).

class LaunchLog {
 public:
  void clear() { used_ = 0; }
  /// Appends the values' bytes. Types should have no padding: different padding counts as different work, which is slow
  /// but never wrong.
  template <class... Values>
  void add(const Values&... values) {
    static_assert((std::is_trivially_copyable_v<Values> && ...));
    constexpr std::size_t kSize = (sizeof(Values) + ...);
    if (used_ + kSize > bytes_.size()) bytes_.resize(2 * bytes_.size() + kSize);
    std::byte* to = bytes_.data() + used_;
    ((std::memcpy(to, &values, sizeof(Values)), to += sizeof(Values)), ...);
    used_ += kSize;
  }
  std::span<const std::byte> bytes() const { return {bytes_.data(), used_}; }

 private:
  std::vector<std::byte> bytes_;  // the first used_ are the log
  std::size_t used_ = 0;
};

// Errors of launches, with the name of the kernel.

/// True with BATON_CUDA_SYNC=1 in the environment: every launch waits for its kernel, so that an error of a kernel is
/// reported by its own launch, and nothing is captured. For finding errors; decoding is several times slower.
bool waits_for_kernels();

/// Throws BackendError that names the kernel when it could not be launched, or, where launches wait for their kernels,
/// when it failed.
void check_launch(const void* kernel, Stream stream);

// Variables of the environment that select how the backend works.

/// True when the variable has this value.
inline bool is_set(const char* variable, std::string_view value) {
  const char* found = std::getenv(variable);
  return found != nullptr && value == found;
}

/// Returns the variable's number; `otherwise` where it has none.
inline std::int64_t number_in(const char* variable, std::int64_t otherwise) {
  const char* found = std::getenv(variable);
  const std::string_view text = found != nullptr ? found : "";
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

// Runtime: what the backend's host code needs of a device, without CUDA headers: memory, the main stream, copies,
// matrix products, and transfers that run concurrently with the main stream. device_runtime.cpp implements it for a
// device; the tests have an emulated device, so that all host code also runs without a GPU.
//
// Work on the main stream runs in the order of the calls. release() may be called on any thread, also for memory that
// queued work still uses. Threads: otherwise one caller at a time. Errors: BackendError.

/// out[T, N] = x[T, C] * w[N, C]^T + bias. x and w are both bf16 or both f32; out is f32, or bf16 where x and w are and
/// there is no bias. Strides in elements.
struct Product {
  void* out = nullptr;
  std::int64_t out_stride = 0;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  const std::byte* w = nullptr;
  std::int64_t w_stride = 0;
  const float* bias = nullptr;  // [N] or null
  std::int64_t t = 0, n = 0, c = 0;
  DType dtype = DType::bf16;
  DType out_dtype = DType::f32;
};

/// Captured work of the stream, which runs again as one launch: a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// A copy between device memory and pinned host memory, asynchronous to the main stream.
struct Transfer {
  void* memory = nullptr;  // the block of device memory, as allocate() returned it
  void* device = nullptr;  // an address within the block
  void* host = nullptr;
  std::size_t bytes = 0;
  bool upload = true;    // host to device; false: device to host
  TransferId after = 0;  // the transfer begins after this one; 0: none
};

/// The number of segments of pinned staging memory, each with an event.
inline constexpr int kEvents = 4;

/// What does not change about a device.
struct DeviceFacts {
  std::string name;         // "cuda:0"
  std::string description;  // "NVIDIA H200, compute capability 9.0, 132 multiprocessors"
  int multiprocessors = 0;
};

/// Times on the main stream.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;
  /// Records the time at which the stream reaches this point.
  virtual void mark() = 0;
  /// Waits for the marks and returns the milliseconds between consecutive marks since the last call.
  virtual std::vector<double> take() = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const DeviceFacts& facts() const = 0;
  virtual std::int64_t free_bytes() const = 0;  // approximate bytes that allocate can still provide
  virtual Stream stream() = 0;                  // the main stream, or the one that is captured

  /// Returns device memory of unspecified content, aligned to 256 bytes. Throws BackendError naming the size when
  /// memory is short.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  // These queue work on the main stream. Host memory must be pinned and stay unchanged until the copy is complete.
  virtual void clear(void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void multiply(const Product& product) = 0;

  /// Queues an asynchronous copy on the upload or the download stream, after all work queued so far on the main stream.
  /// Returns its id. Memory that was uploaded may be downloaded only after follow() for its upload.
  virtual TransferId transfer(const Transfer& transfer) = 0;
  /// Makes work that is queued on the main stream from now on wait for the transfer, and for all transfers queued
  /// before it in the same direction.
  virtual void follow(TransferId transfer) = 0;
  /// Blocks until the transfer is complete.
  virtual void wait_for(TransferId transfer) = 0;

  /// Between the two calls, work on the stream is recorded instead of run; memory must not be allocated. The result of
  /// end_capture() may be discarded.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// Queues a graph on the main stream.
  virtual void replay(const Graph& graph) = 0;

  virtual StreamMarks& marks() = 0;

  /// record() marks this point of the stream; wait() blocks until the stream has reached it. wait() returns at once for
  /// an event that was never recorded.
  virtual void record(int event) = 0;
  virtual void wait(int event) = 0;
  /// Blocks until all work queued so far on the main stream is complete. Transfers may still be in progress.
  virtual void wait_for_stream() = 0;
  /// Blocks until all work and all transfers queued so far are complete.
  virtual void synchronize() = 0;
};

// The CUDA backend over any Runtime: it checks the arguments of operations, plans, and launches kernels.

/// Returns the Runtime of a usable device. `measured`: see make_cuda_backend. Throws BackendError.
std::unique_ptr<Runtime> make_device_runtime(int device, const std::filesystem::path& measured = {});

std::unique_ptr<Backend> make_backend_over(std::unique_ptr<Runtime> runtime);

}  // namespace baton::cuda
