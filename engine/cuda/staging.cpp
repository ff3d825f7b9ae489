#include "engine/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace baton::cuda {

void* DeviceScratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    const std::size_t grown = std::max(bytes, 2 * bytes_);
    void* data = runtime_.allocate(grown);
    if (data_ != nullptr) runtime_.release(data_);  // work under way may still use it: memory is freed on the stream
    data_ = data;
    bytes_ = grown;
  }
  return data_;
}

Staging::Staging(Runtime& runtime, std::size_t segment_bytes)
    : runtime_(runtime),
      segment_bytes_(segment_bytes),
      pinned_(static_cast<std::byte*>(runtime.allocate_pinned(segment_bytes * kEvents))) {}

Staging::~Staging() {
  // The copies under way read it. Errors were or will be reported by those who can throw.
  try {
    runtime_.synchronize();
  } catch (...) {  // NOLINT: a destructor
  }
  runtime_.release_pinned(pinned_);
}

std::byte* Staging::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + bytes > segment_bytes_) {
    runtime_.record(segment_);
    segment_ = (segment_ + 1) % kEvents;
    runtime_.wait(segment_);
    used_ = 0;
  }
  std::byte* room = pinned_ + static_cast<std::size_t>(segment_) * segment_bytes_ + used_;
  used_ += bytes;
  return room;
}

void Staging::to_device(void* device, std::span<const std::byte> host) {
  auto* to = static_cast<std::byte*>(device);
  // Chunks of half a segment: the first is on its way while the second is being read.
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = std::min(host.size() - done, segment_bytes_ / 2);
    std::byte* room = take(bytes);
    std::memcpy(room, host.data() + done, bytes);
    runtime_.copy_to_device(to + done, room, bytes);
    done += bytes;
  }
}

void Staging::to_host(std::span<std::byte> host, const void* device) {
  const auto* from = static_cast<const std::byte*>(device);
  // All segments are free once the stream is; then they are one piece.
  runtime_.synchronize();
  segment_ = 0;
  used_ = 0;
  const std::size_t room = segment_bytes_ * kEvents;
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = std::min(host.size() - done, room);
    runtime_.copy_to_host(pinned_, from + done, bytes);
    runtime_.synchronize();
    std::memcpy(host.data() + done, pinned_, bytes);
    done += bytes;
  }
}

const void* KeptArray::put_bytes(std::span<const std::byte> bytes) {
  if (data_ != nullptr && std::ranges::equal(bytes, host_)) return data_;
  host_.assign(bytes.begin(), bytes.end());
  data_ = device_.reserve(std::max<std::size_t>(bytes.size(), 1));
  staging_.to_device(data_, bytes);
  ++sent_;
  return data_;
}

}  // namespace baton::cuda
