// SPDX-License-Identifier: Apache-2.0
// PromptAssembly: finds the prefix and the segments that a prompt can reuse, and makes the schedule of the rest.
#pragma once

#include <memory>
#include <vector>

#include "engine/loop/anchors.h"
#include "engine/loop/kv_lookup.h"
#include "engine/request.h"
#include "engine/reuse/rectify/corrections.h"
#include "engine/reuse/schedule.h"

namespace baton {

/// takes_prefixes: prompts with these options reuse an exact cached prefix. keeps_prefixes: they also add theirs to the
/// cache. Methods prefix and lockstep always take one; `reuse.prefix` decides whether they keep theirs.
bool takes_prefixes(const ReuseOptions& reuse);
bool keeps_prefixes(const ReuseOptions& reuse);

/// Returns the number of first tokens of the prompt that an exact prefix may hold: all but the last token, and none of
/// a part that becomes a segment, since a prefix holds neither the hidden states nor the attention of a segment. With
/// auto such a part does not become a segment.
std::int32_t max_prefix(const GenerationRequest& request);

/// What a request's cache keeps in addition to keys and values.
KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range);

/// The exact KV that a cache holds before its request is submitted.
struct InPlace {
  std::int32_t placed = 0;  // positions [0, placed) came from a prefix
  std::int32_t ahead = 0;   // positions [placed, ahead) were computed before the prompt was complete
  std::int32_t length = 0;  // positions [placed, length) were computed
};

/// Used by the engine's thread only.
class PromptAssembly {
 public:
  /// Finds the reusable KV and makes the schedule, which is empty when the cache holds all of the prompt already.
  /// `live`: the caches of other sequences, of which a prefix may be copied. `request.reuse.range` must be valid where
  /// the method needs it. `time`: for ReuseOptions::ttft_ms.
  PromptAssembly(const GenerationRequest& request, std::span<const TokenId> prompt, Backend& backend,
                 const Model& model, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors, Corrector& corrector,
                 std::span<const LivePrefix> live = {}, InPlace in_place = {}, PromptTime time = {});

  /// Copies the prefix and the segments into the cache, except those that are still being uploaded.
  void insert(Backend& backend, RopeTable& angles, KvCache& cache);
  /// True when some reused KV is still being uploaded.
  bool is_uploading() const { return arrived_ < layers_; }
  /// Copies the KV that was still being uploaded, up to and including a layer.
  void insert_uploaded(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t layer);

  /// Unpins the segments once the prompt is in the cache; segments that anchors learn from stay pinned.
  void release_segments();

  /// Replaces the schedule, when it has run, by one that computes every position from the first approximate one on.
  void make_exact(std::int32_t length, std::int32_t layers, const std::string& reason);

  /// Number of tokens that insert() copied.
  std::int32_t placed_tokens() const { return placed_tokens_; }

  /// The prompt's anchors; without slots unless the method uses anchors.
  const AnchorTurn& anchor_turn() const { return turn_; }

  PromptSchedule schedule;
  std::vector<PartUse> uses;      // one for each part; account() fills in the counts
  int hops = 0;                   // hops of KV computed after this prompt
  std::int32_t exact_length = 0;  // positions [0, exact_length) will hold exact KV

  /// The positions from here on hold all that a segment keeps; those before it were copied from a prefix.
  std::int32_t recordable() const { return std::max(prefix_.length, in_place_.placed); }

  /// Number of first tokens whose KV is that of the request's context.
  std::int32_t continued() const { return continued_; }

  /// True when position `at` was computed before the request was submitted.
  bool computed(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.length; }
  /// True when position `at` was computed before the prompt was complete.
  bool ahead(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.ahead; }

  /// Fills in the counts of `uses`. computed[i]: number of layers whose KV was computed for position i; recomputed[i]:
  /// the method recomputed position i.
  void account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed, std::int32_t layers);

 private:
  std::shared_ptr<const Segment> usable(const GenerationRequest& request, const PromptPart& part, Backend& backend,
                                        const Model& model, SegmentStore& store, PartUse& use) const;

  void say_group(const LayerRange& group);
  bool correct(const AnchorSlot& slot, PlacedSegment& placed, PartUse& use) const;
  void start_uploads(std::span<const std::shared_ptr<const Segment>> segments) const;
  bool uploads_by_layer(std::size_t placed) const;
  void insert(Backend& backend, RopeTable& angles, KvCache& cache, std::size_t placed, LayerSpan layers);

  InPlace in_place_;
  PrefixCache::Match prefix_;
  std::int32_t continued_ = 0;
  Anchors& anchors_;
  AnchorTurn turn_;
  AnchorOptions anchor_options_;
  std::vector<std::shared_ptr<const Segment>> pinned_;
  std::vector<PlacedSegment> placed_;
  std::vector<std::size_t> corrected_;  // parallel to placed_: index of the part
  Corrector& corrector_;
  std::vector<std::shared_ptr<const LinearCorrection>> learned_;  // of each part; null: none learned, or not requested
  std::vector<std::int32_t> begins_;                              // begin of each part, then the end of the last part
  std::int32_t layers_ = 0;                                       // L
  std::int32_t arrived_ = 0;                                      // layers in which all reused KV is in the cache
  std::vector<std::size_t> late_pieces_;                          // pieces of the prefix that are uploaded by layer
  std::vector<std::size_t> late_;  // indices into placed_ of segments that are uploaded by layer
  std::int32_t placed_tokens_ = 0;
};

}  // namespace baton
