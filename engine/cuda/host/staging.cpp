// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/staging.h"

#include <algorithm>
#include <cstring>

namespace baton::cuda {

void* DeviceScratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    const std::size_t grown = std::max(bytes, 2 * bytes_);
    void* data = runtime_.allocate(grown);
    if (data_ != nullptr) runtime_.release(data_);  // freed on the stream, after queued work that uses it
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
  // Copies in progress still read the pinned memory. Errors are reported by other calls, which can throw.
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
  // Chunks of half a segment: the first is uploaded while the host reads the second.
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = std::min(host.size() - done, segment_bytes_ / 2);
    std::byte* room = take(bytes);
    std::memcpy(room, host.data() + done, bytes);
    runtime_.copy_to_device(to + done, room, bytes);
    ++sent_;
    done += bytes;
  }
}

void Staging::to_host(std::span<std::byte> host, const void* device) {
  const auto* from = static_cast<const std::byte*>(device);
  // A chosen token is the last work of its step: the host waits once, for its copy.
  const bool fits = host.size() <= segment_bytes_;
  if (!fits) wait_for_copies();  // all segments serve as one block
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = fits ? host.size() : std::min(host.size() - done, segment_bytes_ * kEvents);
    std::byte* room = fits ? take(bytes) : pinned_;
    runtime_.copy_to_host(room, from + done, bytes);
    wait_for_copies();
    std::memcpy(host.data() + done, room, bytes);
    done += bytes;
  }
}

void Staging::wait_for_copies() {
  runtime_.wait_for_stream();
  segment_ = 0;
  used_ = 0;
}

namespace {

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

const void* KeptArrays::put_bytes(std::span<const std::byte> bytes) {
  // Callers that do not mark steps start again here: uploads and launches are in stream order, so no array in use is
  // overwritten.
  constexpr std::size_t kMaxArrays = 256;
  if (step_ != staging_.step() || used_ == kMaxArrays) used_ = 0;
  step_ = staging_.step();
  if (used_ > 0 && same(bytes, arrays_[used_ - 1]->host)) return arrays_[used_ - 1]->data;
  if (used_ == arrays_.size()) arrays_.push_back(std::make_unique<Array>(runtime_));
  Array& array = *arrays_[used_++];
  if (array.data != nullptr && same(bytes, array.host)) return array.data;
  array.host.assign(bytes.begin(), bytes.end());
  array.data = array.device.reserve(std::max<std::size_t>(bytes.size(), 1));
  staging_.to_device(array.data, bytes);
  return array.data;
}

}  // namespace baton::cuda
