// SPDX-License-Identifier: Apache-2.0
// Method anchors, after KVComm (docs/methods.md): the KV of reused tokens is corrected while it is copied into the
// cache, by anchors, which learn from each prompt. Anchors applies the pools of an engine (anchor_store.h) to a prompt
// and adds the prompt's texts to the pools.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/rope.h"
#include "engine/reuse/anchors/anchor_choice.h"
#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/method_state.h"

namespace baton {

/// Anchors in memory that the backend can read. An anchor lives in host memory (anchor_choice.h); it is uploaded to a
/// device before its first use, and the copy lives as long as the anchor, so that the budget of the anchors bounds
/// both. Used by the engine's thread only.
class AnchorMemory {
 public:
  explicit AnchorMemory(Device& device) : device_(device), host_memory_(device.info().host_memory) {}

  /// Uploads an anchor unless the device has a copy. Throws BackendError when there is no memory.
  void upload(const SharedAnchor& anchor);

  /// One matrix for each layer.
  struct Layers {
    const std::byte* data = nullptr;
    std::int64_t rows = 0;
    const KvWidth* shape = nullptr;  // the anchor's
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

const Method& anchors_method();

/// The anchor pools in the state that anchors_method() keeps in an engine. Throws std::bad_cast for another state.
AnchorStore& anchor_store_of(MethodState& state);

/// A placeholder whose text has KV, in one prompt.
struct AnchorSlot {
  PlaceKey key;
  std::int32_t begin = 0;      // position of its first token
  std::int32_t following = 0;  // tokens of fixed text behind it
  std::shared_ptr<const Segment> segment;
  SharedText text;  // the tokens that have KV
  std::vector<SharedText> before;
  AnchorChoice choice;
  std::int32_t length() const { return segment->length(); }
};

struct AnchorTurn {
  std::vector<std::optional<AnchorSlot>> slots;  // one for each part of the prompt
  std::string reader;                            // whose prompt it is
  bool learning = false;                         // all of the prompt is computed, and its texts become anchors
};

/// Used by the engine's thread only, except for store().
class Anchors {
 public:
  Anchors(Backend& backend, const Model& model, std::int64_t budget_bytes)
      : backend_(backend),
        compares_ahead_(backend.info().host_memory),
        sketcher_(backend, model),
        memory_(backend),
        store_(budget_bytes) {}

  AnchorStore& store() { return store_; }
  const AnchorStore& store() const { return store_; }

  /// Chooses what happens to each placeholder of a prompt.
  AnchorTurn look(const PromptToPlace& prompt, const AnchorOptions& options);

  /// Copies tokens [first, n) of the slot, corrected, into these layers of the cache.
  void insert(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, std::int32_t first,
              const AnchorOptions& options, LayerSpan layers);
  /// Copies the anchors' KV of the fixed text after the slot into all layers of the cache.
  void insert_text(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, const AnchorOptions& options);

  /// Makes anchors of the slots of a turn that was computed in full. The cache must keep keys before RoPE.
  void learn(const AnchorTurn& turn, const KvCache& cache, const AnchorOptions& options);

  /// Prepares the anchors for the readers of an answer that a request is decoding, so that no work is left when the
  /// readers begin: uploads the anchors of `slot` to the backend and, on the host, compares the answer with them token
  /// by token. (A device compares whole texts, many pairs of them in the time of one.) Without memory for that the
  /// readers do the work.
  void follow(std::uint64_t id, const std::string& slot, const std::string& pool,
              std::span<const TokenId> answer) noexcept;
  /// Reports that a request has ended with this answer, whose first `with_kv` tokens have KV.
  void ended(std::uint64_t id, std::span<const TokenId> answer, std::int32_t with_kv);

 private:
  struct Follower {
    std::vector<SharedText> others;
    std::vector<Aligner> aligners;
    std::size_t tokens = 0;
  };

  void compare_ahead(std::uint64_t id, const std::string& slot, const std::string& pool,
                     std::span<const TokenId> answer);

  using Pools = std::vector<AnchorPoolView>;  // parallel to AnchorTurn::slots
  void compare(const AnchorTurn& turn, const Pools& pools);

  Backend& backend_;
  const bool compares_ahead_;
  TokenSketcher sketcher_;
  AlignmentMemo memo_;
  AnchorMemory memory_;
  std::map<std::uint64_t, Follower> following_;
  AnchorStore store_;
};

}  // namespace baton
