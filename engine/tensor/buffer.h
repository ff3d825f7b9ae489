// SPDX-License-Identifier: Apache-2.0
// Buffer: the owner of a block of a backend's memory. Move-only; the destructor releases the memory to its owner.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/tensor/view.h"

namespace baton {

/// Allocates the memory of buffers, and must outlive them. release() is called once per buffer, by its destructor.
class BufferOwner {
 public:
  virtual void release(void* data, std::size_t bytes) noexcept = 0;

 protected:
  ~BufferOwner() = default;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(BufferOwner* owner, void* data, std::size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) owner_->release(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

  /// Returns a view of the buffer's first rows * cols elements as a matrix. The buffer is not checked to be that large.
  TensorView view(DType dtype, std::int64_t rows, std::int64_t cols) const { return {data(), dtype, rows, cols, cols}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  BufferOwner* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace baton
