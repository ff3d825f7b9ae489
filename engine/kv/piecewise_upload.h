// SPDX-License-Identifier: Apache-2.0
// PiecewiseUpload: memory that comes from the host's to the device's piece by piece, beside the operations, so that who
// needs the first piece need not wait for the last. The engine's thread only, but for the end of it.
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
  /// Keeps both buffers while anything is to come.
  PiecewiseUpload(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                  std::vector<Piece> pieces);

  /// Begins to copy a piece, once. Throws BackendError.
  void upload(std::size_t piece);
  /// Operations given from now on find the piece there. Throws BackendError.
  void follow(std::size_t piece);
  void follow_all();
  /// All has been followed.
  bool complete() const { return from_ == nullptr; }

 private:
  enum class State : std::uint8_t { waiting, queued, followed };

  Device& device_;
  std::shared_ptr<const Buffer> from_, to_;
  std::vector<Piece> pieces_;
  std::vector<State> state_;           // of the pieces
  std::vector<TransferId> transfers_;  // of a piece: that of its last range
  std::size_t unfollowed_;
};

}  // namespace baton
