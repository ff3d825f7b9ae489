// SPDX-License-Identifier: Apache-2.0
// What the backend's host code needs of a device, and nothing of CUDA: memory, one stream, copies, matrix products, and
// copies that run beside the stream.
// device_runtime.cpp is the device; the tests have an emulated one, so that all host code runs where there is no GPU.
//
// Work on the stream runs in the order it was given; release() may be called for memory that queued work still uses,
// and on any thread. Threads: one caller at a time. Errors: BackendError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/device.h"
#include "engine/cuda/host/types.h"

namespace baton::cuda {

/// out[T, N] f32 = x[T, C] * w[N, C]^T + bias. x and w are both bf16 or both f32; strides in elements.
struct Product {
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  const std::byte* w = nullptr;
  std::int64_t w_stride = 0;
  const float* bias = nullptr;  // [N] or null
  std::int64_t t = 0, n = 0, c = 0;
  DType dtype = DType::bf16;
};

/// Work of the stream that was captured once and runs again as one launch: a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// A copy between a piece of the device's memory and pinned memory, beside the stream.
struct Transfer {
  void* memory = nullptr;  // the piece, as allocate() gave it
  void* device = nullptr;  // in it
  void* host = nullptr;
  std::size_t bytes = 0;
  bool upload = true;    // to the device
  TransferId after = 0;  // begins behind this one
};

/// Segments of pinned memory, each with an event.
inline constexpr int kEvents = 4;

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual std::string name() const = 0;         // "cuda:0"
  virtual std::string description() const = 0;  // "NVIDIA H200, compute capability 9.0, 132 multiprocessors"
  virtual int multiprocessors() const = 0;
  virtual std::int64_t free_bytes() const = 0;  // that allocate can give now, about
  virtual Stream stream() = 0;

  /// Device memory with any content, aligned to 256 bytes. Throws BackendError naming the size when there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  // On the stream; host memory is pinned, and stays as it is until the copy has been made.
  virtual void clear(void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void multiply(const Product& product) = 0;

  /// Runs in its direction's order, beside the stream, when that has done what it was given so far. Its number. What
  /// goes down has come up, if it did: the stream has followed that.
  virtual TransferId transfer(const Transfer& transfer) = 0;
  /// The stream goes on behind the transfer and all before it in its direction.
  virtual void follow(TransferId transfer) = 0;
  /// Returns when it is made.
  virtual void wait_for(TransferId transfer) = 0;

  /// Between the two, work given to the stream is kept instead of run. end_capture() may be called without using what
  /// it returns; memory must not be allocated in between.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// Runs a graph on the stream.
  virtual void replay(const Graph& graph) = 0;

  /// Notes the time at this point of the stream. take_marks waits for the stream and returns the milliseconds between
  /// the marks since the last call.
  virtual void mark() = 0;
  virtual std::vector<double> take_marks() = 0;

  /// Marks this point of the stream; wait() returns when it has been reached. An event never recorded is reached.
  virtual void record(int event) = 0;
  virtual void wait(int event) = 0;
  /// Returns when all work and all transfers given so far are done.
  virtual void synchronize() = 0;
};

}  // namespace baton::cuda
