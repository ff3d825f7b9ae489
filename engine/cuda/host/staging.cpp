// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/staging.h"

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
    ++sent_;
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

namespace {

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

const void* KeptArrays::put_bytes(std::span<const std::byte> bytes) {
  // Callers that know no steps begin again here: the arrays of launches under way are overwritten in stream order.
  constexpr std::size_t kMaxArrays = 256;
  if (step_ != staging_.step() || used_ == kMaxArrays) used_ = 0;
  step_ = staging_.step();
  if (used_ > 0 && same(bytes, places_[used_ - 1]->host)) return places_[used_ - 1]->data;
  if (used_ == places_.size()) places_.push_back(std::make_unique<Place>(runtime_));
  Place& place = *places_[used_++];
  if (place.data != nullptr && same(bytes, place.host)) return place.data;
  place.host.assign(bytes.begin(), bytes.end());
  place.data = place.device.reserve(std::max<std::size_t>(bytes.size(), 1));
  staging_.to_device(place.data, bytes);
  return place.data;
}

}  // namespace baton::cuda
