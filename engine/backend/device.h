// SPDX-License-Identifier: Apache-2.0
// Device: the memory of a backend, the copies between it and the host, and the order of its work. Code that keeps or
// moves data takes a Device; code that computes takes Operations (engine/backend/operations.h) or the whole Backend.
//
// A device may run asynchronously: operations and copies are queued on its main stream in the order of the calls.
// Functions with a body here are for devices whose memory the host reads and whose work is done when a call returns.
//
// Threads: one caller at a time, except where a function says otherwise. Errors: BackendError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/tensor/buffer.h"

namespace baton {

class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BackendInfo {
  std::string name;    // "cpu", "cuda:0"
  std::string device;  // "Intel Xeon ..., AVX-512, 2 threads"
  int threads = 1;
  std::int64_t free_bytes = 0;  // approximate bytes that allocate can still provide; 0: what the machine has free
  bool host_memory = true;      // operations read host memory as their own
  std::string fallback;         // why `auto` took the CPU although a GPU is there, or empty

  /// "cpu: Intel Xeon ..., AVX-512, 2 threads", with the reason of a fallback.
  std::string description() const;
};

/// Identifies an asynchronous copy (Device::upload, Device::download); 0: the copy was already complete on return.
using TransferId = std::uint64_t;

class Device : public BufferOwner {
 public:
  virtual ~Device() = default;
  virtual BackendInfo info() const = 0;

  /// Returns zeroed memory, aligned to 64 bytes. Throws BackendError naming the size when there is not enough.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// As allocate, with unspecified content: for memory that is written before it is read.
  virtual Buffer allocate_uninitialized(std::size_t bytes) { return allocate(bytes); }
  virtual void clear(std::byte* out, std::size_t bytes);
  virtual void copy_to_device(std::byte* out, std::span<const std::byte> host) = 0;
  /// Waits for the operations that write the memory, and copies it.
  virtual void copy_to_host(std::span<std::byte> out, const std::byte* device) = 0;

  /// Returns host memory of unspecified content for data that is uploaded and downloaded asynchronously. It may be
  /// released at any time, on any thread.
  virtual Buffer allocate_host(std::size_t bytes) { return allocate_uninitialized(bytes); }
  /// Queues an asynchronous copy of bytes [begin, begin + bytes) from `host` to the same range of `device` on the
  /// upload stream, after all work queued so far on the main stream and after earlier transfers of the same host
  /// memory. Returns its id. Work queued later on the main stream does not wait for the copy until follow() says so.
  /// Either buffer may be released before the copy is complete; where another device allocated `host`, not before
  /// wait_for(). Throws BackendError, std::invalid_argument.
  virtual TransferId upload(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes);
  /// Queues the same copy in the other direction on the download stream. The host may read the memory after wait().
  virtual TransferId download(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes);
  /// Makes the work that is queued on the main stream from now on wait for a transfer, and for all transfers queued
  /// before it in the same direction.
  virtual void follow(TransferId transfer);
  /// Blocks until a transfer is complete, and all transfers queued before it in the same direction.
  virtual void wait_for(TransferId /*transfer*/) {}
  /// Blocks until all operations and transfers queued so far are complete.
  virtual void wait() {}

  /// Runs `work`, the operations of one engine step. `repeats`: steps with the same operations will follow, as in
  /// decoding. Then a device may call `work` more than once, each time for the same operations over the same memory,
  /// and may replay the launches of an earlier step; `work` must neither allocate nor copy to the host.
  virtual void run_step(const std::function<void()>& work, bool repeats);

  /// Records the time at which the operations queued so far are complete. A step that repeats records nothing.
  virtual void mark();
  /// Waits for all operations, and returns the milliseconds between consecutive marks since the last call: one value
  /// fewer than there were marks.
  virtual std::vector<double> take_marks();

  /// Keeps a copy of a model's vector (norm weights, biases) where operations read it. Operations then recognise the
  /// vector by its address, so it must not change while the returned buffer lives. Vectors that are not kept are
  /// compared with their last content on every call.
  virtual Buffer keep(std::span<const float> /*values*/) { return {}; }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;  // of devices whose work is done when a call returns
};

}  // namespace baton
