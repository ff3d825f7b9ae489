// Copies between ordinary host memory and the device through pinned memory, so that they run beside the host: the
// caller may change its memory as soon as a call returns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/cuda/runtime.h"

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

 private:
  /// Room for `bytes` (at most a segment) that no copy under way uses.
  std::byte* take(std::size_t bytes);

  Runtime& runtime_;
  std::size_t segment_bytes_;
  std::byte* pinned_;
  int segment_ = 0;
  std::size_t used_ = 0;  // of the segment
};

/// A small array on the device that is sent again only when its content has changed: row descriptions are the same in
/// all layers of a step.
class KeptArray {
 public:
  KeptArray(Runtime& runtime, Staging& staging) : staging_(staging), device_(runtime) {}
  template <class T>
  const T* put(std::span<const T> values) {
    return static_cast<const T*>(put_bytes(std::as_bytes(values)));
  }
  int sent() const { return sent_; }

 private:
  const void* put_bytes(std::span<const std::byte> bytes);

  Staging& staging_;
  DeviceScratch device_;
  std::vector<std::byte> host_;
  void* data_ = nullptr;
  int sent_ = 0;
};

}  // namespace baton::cuda
