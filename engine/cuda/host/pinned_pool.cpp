// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/pinned_pool.h"

#include <algorithm>

namespace baton::cuda {
namespace {

constexpr std::size_t kMaxSpareBytes = std::size_t{256} << 20;  // unused memory beyond this is freed

}  // namespace

PinnedPool::~PinnedPool() {
  try {
    runtime_.synchronize();
  } catch (...) {  // NOLINT: a destructor must not throw; other calls report the error
  }
  for (const auto& [data, piece] : pieces_) runtime_.release_pinned(data);
}

Buffer PinnedPool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = std::max<std::size_t>(bytes, 1);
  auto best = pieces_.end();
  std::size_t spare = 0;
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    const auto& [size, last, is_free] = piece->second;
    if (!is_free) continue;
    spare += size;
    const bool fits = size >= bytes && size - bytes <= bytes / 2;
    if (fits && (best == pieces_.end() || size < best->second.bytes)) best = piece;
  }
  if (best == pieces_.end()) {
    for (auto piece = pieces_.begin(); piece != pieces_.end() && spare > kMaxSpareBytes;) {
      if (!piece->second.free) {
        ++piece;
        continue;
      }
      runtime_.wait_for(piece->second.last_use);
      spare -= piece->second.bytes;
      runtime_.release_pinned(piece->first);
      piece = pieces_.erase(piece);
    }
    best = pieces_.emplace(runtime_.allocate_pinned(bytes), Piece{bytes, 0, false}).first;
  }
  runtime_.wait_for(best->second.last_use);
  best->second.free = false;
  return {this, best->first, bytes};
}

void PinnedPool::used_by(const void* data, TransferId transfer) {
  const std::lock_guard lock(mutex_);
  pieces_.at(const_cast<void*>(data)).last_use = transfer;
}

TransferId PinnedPool::last_use(const void* data) {
  const std::lock_guard lock(mutex_);
  return pieces_.at(const_cast<void*>(data)).last_use;
}

void PinnedPool::release(void* data, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  pieces_.at(data).free = true;
}

}  // namespace baton::cuda
