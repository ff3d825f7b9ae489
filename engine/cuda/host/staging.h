// SPDX-License-Identifier: Apache-2.0
// Copies between ordinary host memory and the device through pinned memory, so that they run beside the host: the
// caller may change its memory as soon as a call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Device memory that grows and is kept; its content is lost when it grows.
class DeviceScratch {
 public:
  explicit DeviceScratch(Runtime& runtime) : runtime_(runtime) {}
  ~DeviceScratch() {
    if (data_ != nullptr) runtime_.release(data_);
  }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  void* reserve(std::size_t bytes);
  template <class T>
  T* reserve(std::int64_t count) {
    return static_cast<T*>(reserve(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  Runtime& runtime_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Staging {
 public:
  /// kEvents segments of pinned memory of `segment_bytes` each.
  explicit Staging(Runtime& runtime, std::size_t segment_bytes = std::size_t{4} << 20);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Copies on the stream; large copies go in chunks, each sent while the next is being read.
  void to_device(void* device, std::span<const std::byte> host);
  /// Waits for everything before it on the stream.
  void to_host(std::span<std::byte> host, const void* device);

  /// A step begins, or begins once more: arrays that are kept go to their first places again.
  void begin_step() { ++step_; }
  std::uint64_t step() const { return step_; }
  /// Copies to the device so far.
  std::uint64_t sent() const { return sent_; }

 private:
  /// Room for `bytes` (at most a segment) that no copy under way uses.
  std::byte* take(std::size_t bytes);

  Runtime& runtime_;
  std::size_t segment_bytes_;
  std::byte* pinned_;
  int segment_ = 0;
  std::size_t used_ = 0;  // of the segment
  std::uint64_t step_ = 0;
  std::uint64_t sent_ = 0;
};

/// Small arrays on the device, of one purpose: the n-th content that a step puts goes to the n-th place, and is sent
/// only when that place holds something else. So what is the same in all layers is sent once, and what is the same in
/// every step (the caches of each layer) not again; and a step of the same form finds its arrays where they were, which
/// is what a replay needs.
class KeptArrays {
 public:
  KeptArrays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}
  template <class T>
  const T* put(std::span<const T> values) {
    return static_cast<const T*>(put_bytes(std::as_bytes(values)));
  }

 private:
  struct Place {
    explicit Place(Runtime& runtime) : device(runtime) {}
    DeviceScratch device;
    std::vector<std::byte> host;
    void* data = nullptr;
  };
  const void* put_bytes(std::span<const std::byte> bytes);

  Runtime& runtime_;
  Staging& staging_;
  std::vector<std::unique_ptr<Place>> places_;
  std::size_t used_ = 0;  // places that the step has put something in
  std::uint64_t step_ = 0;
};

}  // namespace baton::cuda
