// SPDX-License-Identifier: Apache-2.0
// AnchorMemory: anchors in memory that the backend can read. An anchor lives in host memory
// (engine/reuse/anchors/anchor.h); it is uploaded to a device before its first use, and the copy lives as long as the
// anchor, so that the budget of the anchors bounds both.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/reuse/anchors/anchor.h"

namespace baton {

/// Used by the engine's thread only.
class AnchorMemory {
 public:
  explicit AnchorMemory(Device& device) : device_(device), host_memory_(device.info().host_memory) {}

  /// Uploads an anchor unless the device has a copy. Throws BackendError when there is no memory.
  void upload(const SharedAnchor& anchor);

  /// One matrix for each layer.
  struct Layers {
    ConstTensorView first;
    ConstTensorView operator()(std::int32_t layer) const;
  };
  // Return [n, 2 K D] and [t, 2 K D] bf16 per layer, valid while the anchor lives. Both upload the anchor if need be.
  Layers offset(const SharedAnchor& anchor);
  Layers text(const SharedAnchor& anchor);

  /// Number of pieces of memory on the device.
  std::size_t size() const { return copies_.size(); }

 private:
  /// The device copy of one piece of host memory, which several anchors may share.
  struct Copy {
    std::vector<std::weak_ptr<const Anchor>> users;  // while one of them lives, the host memory is unchanged
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
