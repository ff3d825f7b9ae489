// SPDX-License-Identifier: Apache-2.0
// PiecewiseUpload: a copy from host to device memory in pieces, concurrent with the operations, so that a reader of the
// first piece does not wait for the last one (docs/decisions/memory.md). Threads: the engine's thread only; the
// destructor may run on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/device.h"

namespace baton {

class PiecewiseUpload {
 public:
  struct Range {
    std::size_t begin = 0, bytes = 0;
  };
  using Piece = std::vector<Range>;
  enum class Source : std::uint8_t { own, of_another_device };
  /// Keeps both buffers alive until the main stream waits for all pieces. Another device does not know when the copies
  /// of its memory are complete, so the destructor waits for them, on the engine's thread. Copies nothing yet.
  PiecewiseUpload(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                  std::vector<Piece> pieces, Source source = Source::own);
  ~PiecewiseUpload();
  PiecewiseUpload(const PiecewiseUpload&) = delete;
  PiecewiseUpload& operator=(const PiecewiseUpload&) = delete;

  /// Queues the copies of a piece on the upload stream, unless they were queued before. Throws BackendError.
  void upload(std::size_t piece);
  /// Makes the operations that are queued from now on wait for the piece, and uploads it first where that has not been
  /// done. The host does not wait. Throws BackendError.
  void follow(std::size_t piece);
  void follow_all();
  /// True when follow() was called for every piece.
  bool complete() const { return unfollowed_ == 0; }

 private:
  enum class State : std::uint8_t { waiting, queued, followed };

  Device& device_;
  std::shared_ptr<const Buffer> from_, to_;
  std::vector<Piece> pieces_;
  std::vector<State> state_;           // [number of pieces]
  std::vector<TransferId> transfers_;  // [number of pieces] the copy of the piece's last range
  std::size_t unfollowed_;
  Source source_;
};

}  // namespace baton
