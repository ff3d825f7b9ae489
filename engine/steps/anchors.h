// SPDX-License-Identifier: Apache-2.0
// Anchors: what the anchor pools of an engine make of a prompt, and what they learn from it (KVComm; docs/methods.md).
// The pools themselves are in engine/reuse/anchors/anchor_store.h.
#pragma once

#include <map>
#include <optional>

#include "engine/model/rope_table.h"
#include "engine/request.h"
#include "engine/reuse/anchors/anchor_memory.h"
#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/placement.h"

namespace baton {

/// The place of each placeholder of a prompt: the fixed text and the names in front of it, and the fixed text behind.
/// Nothing for fixed text.
std::vector<AnchorKey> places_of(const std::vector<PromptPart>& prompt, const std::string& pool);

/// A placeholder whose text has KV, in one prompt.
struct AnchorSlot {
  AnchorKey key;
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
  std::string reader;                            // GenerationRequest::reader
  bool learning = false;                         // all of the prompt is computed, and its texts become anchors
};

/// The engine's thread only, but for store().
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

  /// `segments`: of each part of the prompt, null where it has no KV to reuse.
  AnchorTurn look(const GenerationRequest& request, const AnchorOptions& options,
                  std::span<const std::shared_ptr<const Segment>> segments);

  /// Tokens [first, n) of the slot go into the cache, corrected, in these layers.
  void place(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, std::int32_t first,
             const AnchorOptions& options, LayerSpan layers);
  /// The fixed text behind it, in all layers.
  void place_text(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, const AnchorOptions& options);

  /// The slots of a turn that was computed in full, and whose cache keeps raw keys, become anchors.
  void learn(const AnchorTurn& turn, const KvCache& cache, const AnchorOptions& options);

  /// A request decodes an answer that others will read as `slot`. Nothing shall be left to do when its readers begin:
  /// the anchors are brought to where the backend reads them; on the host, the answer is compared with them token by
  /// token. (A device compares whole texts, and many pairs of them in the time of one.)
  void follow(RequestId id, const std::string& slot, const std::string& pool, std::span<const TokenId> answer);
  void ended(RequestId id, std::span<const TokenId> answer, std::int32_t with_kv);

 private:
  struct Follower {
    std::vector<SharedText> others;
    std::vector<Aligner> aligners;
    std::size_t tokens = 0;
  };

  using Pools = std::vector<AnchorPoolView>;  // beside AnchorTurn::slots
  void compare(const AnchorTurn& turn, const Pools& pools);

  Backend& backend_;
  const bool compares_ahead_;
  TokenSketcher sketcher_;
  AlignmentMemo memo_;
  AnchorMemory memory_;
  std::map<RequestId, Follower> following_;
  AnchorStore store_;
};

}  // namespace baton
