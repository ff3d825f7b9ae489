// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

#include "engine/backend/backend.h"
#include "engine/base/system/machine.h"

namespace baton::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Blocks of at least this size come in pages, which the system zeroes on first touch and can back with huge pages.
constexpr std::size_t kMapped = 2 * kHugePage;
constexpr std::size_t kMaxBytes = static_cast<std::size_t>(PTRDIFF_MAX) / 2;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Eight sizes for each power of two: a block fits many requests, and what it has too much is never touched.
std::size_t size_of_block(std::size_t bytes) { return round_up(bytes, std::max(std::bit_floor(bytes) / 8, kHugePage)); }

[[noreturn]] void fail(std::size_t bytes) {
  throw BackendError(fmt::format("cannot allocate {} bytes of memory", bytes));
}

void* small_block(std::size_t bytes) {
  void* data = ::operator new (std::max(bytes, kAlignment), std::align_val_t{kAlignment}, std::nothrow);
  return data != nullptr ? data : (fail(bytes), nullptr);
}

}  // namespace

BlockPool::~BlockPool() { drop_oldest(0); }

void* BlockPool::allocate_zeroed(std::size_t bytes) {
  if (bytes >= kMapped) return take(bytes, true);
  return std::memset(small_block(bytes), 0, bytes);
}

void* BlockPool::allocate(std::size_t bytes) { return bytes >= kMapped ? take(bytes, false) : small_block(bytes); }

void* BlockPool::take(std::size_t bytes, bool zeroed) {
  if (bytes > kMaxBytes) fail(bytes);
  const std::size_t size = size_of_block(bytes);
  const std::lock_guard lock(mutex_);
  try {
    kept_.reserve(kept_.size() + used_count_ + 1);  // so that `release` needs no memory
  } catch (const std::bad_alloc&) {
    fail(bytes);
  }
  const auto last = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Block& block) { return block.size == size; });
  void* data = nullptr;
  if (!zeroed && last != kept_.rend()) {
    data = last->data;
    kept_.erase(std::next(last).base());
    keeps_ -= size;
  } else {
    drop_oldest(used_peak_ > used_ + size ? used_peak_ - used_ - size : 0);
    data = map_pages(size, zeroed);
    if (data == nullptr && !kept_.empty()) {
      drop_oldest(0);
      data = map_pages(size, zeroed);
    }
    if (data == nullptr) fail(bytes);
  }
  ++used_count_;
  used_ += size;
  used_peak_ = std::max(used_peak_, used_);
  return data;
}

void BlockPool::release(void* data, std::size_t bytes) noexcept {
  if (bytes < kMapped) return ::operator delete (data, std::align_val_t{kAlignment});
  const std::size_t size = size_of_block(bytes);
  lend_pages(data, size);
  const std::lock_guard lock(mutex_);
  --used_count_;
  used_ -= size;
  keeps_ += size;
  kept_.push_back({data, size});
}

/// Unmaps kept blocks until they have at most `room` bytes.
void BlockPool::drop_oldest(std::size_t room) {
  std::size_t count = 0;
  for (; keeps_ > room; ++count) {
    keeps_ -= kept_[count].size;
    unmap_pages(kept_[count].data, kept_[count].size);
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
}

std::size_t BlockPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return keeps_;
}

}  // namespace baton::cpu
