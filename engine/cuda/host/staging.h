// SPDX-License-Identifier: Apache-2.0
// Copies between ordinary host memory and the device through pinned memory. They are asynchronous to the host: the
// caller may change its memory as soon as a call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Device memory that is kept between calls. It grows to the largest request; growing loses the content.
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
  /// Allocates kEvents segments of pinned memory of `segment_bytes` each. Throws BackendError.
  explicit Staging(Runtime& runtime, std::size_t segment_bytes = std::size_t{4} << 20);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Uploads on the main stream. Large copies are split into chunks: one is uploaded while the host reads the next.
  void to_device(void* device, std::span<const std::byte> host);
  /// Downloads after all work queued so far on the main stream, and blocks until the copy is complete. Transfers may
  /// still be in progress then.
  void to_host(std::span<std::byte> host, const void* device);

  /// Marks the beginning of an engine step, or of its repetition: KeptArrays start again at their first arrays.
  void begin_step() { ++step_; }
  std::uint64_t step() const { return step_; }
  /// Returns the number of uploads so far.
  std::uint64_t sent() const { return sent_; }

 private:
  /// Returns `bytes` (at most a segment) of pinned memory that no copy in progress uses.
  std::byte* take(std::size_t bytes);
  /// Afterwards no copy uses pinned memory of the staging.
  void wait_for_copies();

  Runtime& runtime_;
  std::size_t segment_bytes_;
  std::byte* pinned_;
  int segment_ = 0;
  std::size_t used_ = 0;  // bytes of the current segment
  std::uint64_t step_ = 0;
  std::uint64_t sent_ = 0;
};

/// Small arrays on the device for one purpose. The n-th put() of an engine step uses the n-th array, and uploads the
/// content only when that array's content differs. So content that every step repeats (the caches of each layer) is
/// uploaded once, and a step of the same form finds its arrays at the same addresses, as a replay requires.
class KeptArrays {
 public:
  KeptArrays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}
  template <class T>
  const T* put(std::span<const T> values) {
    return static_cast<const T*>(put_bytes(std::as_bytes(values)));
  }

 private:
  struct Array {
    explicit Array(Runtime& runtime) : device(runtime) {}
    DeviceScratch device;
    std::vector<std::byte> host;
    void* data = nullptr;
  };
  const void* put_bytes(std::span<const std::byte> bytes);

  Runtime& runtime_;
  Staging& staging_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::size_t used_ = 0;  // arrays that the current step has used
  std::uint64_t step_ = 0;
};

}  // namespace baton::cuda
