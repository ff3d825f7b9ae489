// SPDX-License-Identifier: Apache-2.0
// AnchorMemory: anchors where the backend can read them. An anchor lives in host memory
// (engine/reuse/anchors/anchor.h); a device gets a copy when it is first needed, or before, and keeps it for as long as
// the anchor lives, so that the budget of the anchors bounds both.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/device.h"
#include "engine/reuse/anchors/anchor.h"

namespace baton {

/// The engine's thread only.
class AnchorMemory {
 public:
  explicit AnchorMemory(Device& device) : device_(device), host_memory_(device.info().host_memory) {}

  /// Copies an anchor that is not there yet. Throws BackendError when there is no memory.
  void bring(const SharedAnchor& anchor);

  /// A matrix of each layer.
  struct Layers {
    ConstTensorView first;
    ConstTensorView operator()(std::int32_t layer) const;
  };
  // [n, 2 K D] and [t, 2 K D] bf16, valid while the anchor lives. They bring it.
  Layers offset(const SharedAnchor& anchor);
  Layers text(const SharedAnchor& anchor);

  /// Pieces of memory that a device holds.
  std::size_t size() const { return copies_.size(); }

 private:
  /// Of one piece of host memory, which anchors may share.
  struct Copy {
    std::vector<std::weak_ptr<const Anchor>> users;  // while one of them lives, the piece is what it was
    Buffer memory;
    bool is_used_by(const Anchor* anchor) const;
    bool is_unused() const;
  };
  const std::byte* copy_of(const SharedAnchor& anchor, std::span<const std::uint16_t> values);

  Device& device_;
  bool host_memory_;
  std::map<const void*, Copy> copies_;
};

}  // namespace baton
