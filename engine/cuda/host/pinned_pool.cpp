// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/pinned_pool.h"

#include <algorithm>
#include <iterator>
#include <system_error>

namespace baton::cuda {
namespace {

constexpr std::size_t kMaxSpareBytes = std::size_t{256} << 20;  // unused memory beyond this is freed
constexpr std::size_t kMinAheadBytes = std::size_t{64} << 20;   // of a block that is pinned before it is needed
constexpr std::size_t kPage = 4096;                             // pieces are whole pages

}  // namespace

PinnedPool::~PinnedPool() {
  if (maker_.joinable()) {
    maker_.request_stop();
    maker_.join();
  }
  try {
    runtime_.synchronize();
  } catch (...) {  // NOLINT: a destructor must not throw; other calls report the error
  }
  for (const auto& [block, bytes] : blocks_) runtime_.release_pinned(block);
}

Buffer PinnedPool::allocate(std::size_t bytes) {
  const std::size_t needed = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  std::unique_lock lock(mutex_);
  largest_ = std::max(largest_, needed);
  free_unused_blocks(needed);
  auto piece = smallest_free(needed);
  if (piece == pieces_.end()) {
    lock.unlock();
    void* block = runtime_.allocate_pinned(needed);
    lock.lock();
    piece = add_block(block, needed);
    ++pinned_;
  }
  split(piece, needed);
  piece->second.free = false;
  if (pinned_ > 1 && smallest_free(needed) == pieces_.end()) want_block(needed);
  Buffer buffer{this, piece->first, bytes};
  const Piece before = piece->second;
  lock.unlock();
  wait_for(before);
  return buffer;
}

PinnedPool::Pieces::iterator PinnedPool::smallest_free(std::size_t bytes) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (!piece->second.free || piece->second.bytes < bytes) continue;
    if (best == pieces_.end() || piece->second.bytes < best->second.bytes) best = piece;
  }
  return best;
}

PinnedPool::Pieces::iterator PinnedPool::add_block(void* block, std::size_t bytes) {
  blocks_[block] = bytes;
  return pieces_.insert_or_assign(block, Piece{.bytes = bytes, .block = block}).first;
}

void PinnedPool::split(Pieces::iterator piece, std::size_t bytes) {
  if (piece->second.bytes == bytes) return;
  Piece rest = piece->second;
  rest.bytes -= bytes;
  pieces_.emplace(static_cast<std::byte*>(piece->first) + bytes, rest);
  piece->second.bytes = bytes;
}

void PinnedPool::merge_with_next(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || next->second.block != piece->second.block) return;
  if (!piece->second.free || !next->second.free) return;
  piece->second.bytes += next->second.bytes;
  piece->second.last_upload = std::max(piece->second.last_upload, next->second.last_upload);
  piece->second.last_download = std::max(piece->second.last_download, next->second.last_download);
  pieces_.erase(next);
}

void PinnedPool::wait_for(const Piece& piece) {
  runtime_.wait_for(piece.last_upload);
  runtime_.wait_for(piece.last_download);
}

/// Frees blocks of which nothing is used, but for some that the next pieces may take.
void PinnedPool::free_unused_blocks(std::size_t bytes) {
  std::size_t spare = 0;
  for (const auto& [data, piece] : pieces_) spare += piece.free ? piece.bytes : 0;
  const std::size_t max_spare = std::max({kMaxSpareBytes, 2 * largest_, bytes});
  for (auto piece = pieces_.begin(); piece != pieces_.end() && spare > max_spare;) {
    const auto block = blocks_.find(piece->first);
    if (!piece->second.free || block == blocks_.end() || block->second != piece->second.bytes) {
      ++piece;
      continue;
    }
    wait_for(piece->second);
    spare -= piece->second.bytes;
    runtime_.release_pinned(block->first);
    blocks_.erase(block);
    piece = pieces_.erase(piece);
  }
}

void PinnedPool::want_block(std::size_t bytes) {
  if (!ahead_ || wanted_ > 0) return;
  wanted_ = std::max(kMinAheadBytes, 2 * bytes);
  try {
    if (!maker_.joinable()) maker_ = std::jthread([this](const std::stop_token& stop) { make_blocks(stop); });
  } catch (const std::system_error&) {  // no thread can be started
  }
  changed_.notify_one();
}

/// Ends when memory is short: from then on the caller pins what it needs, because wanted_ stays.
void PinnedPool::make_blocks(const std::stop_token& stop) noexcept {
  try {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return wanted_ > 0; }) && !stop.stop_requested()) {
      const std::size_t bytes = wanted_;
      lock.unlock();
      void* block = runtime_.allocate_pinned(bytes);
      lock.lock();
      add_block(block, bytes);
      wanted_ = 0;
    }
  } catch (const std::exception&) {  // NOLINT: nobody waits for a block
  }
}

void PinnedPool::used_by(const void* data, TransferId transfer, bool upload) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(const_cast<void*>(data));
  if (piece != pieces_.end()) (upload ? piece->second.last_upload : piece->second.last_download) = transfer;
}

TransferId PinnedPool::last_use(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(const_cast<void*>(data));
  return piece == pieces_.end() ? 0 : std::max(piece->second.last_upload, piece->second.last_download);
}

void PinnedPool::release(void* data, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(data);
  piece->second.free = true;
  merge_with_next(piece);
  if (piece != pieces_.begin()) merge_with_next(std::prev(piece));
}

}  // namespace baton::cuda
