// SPDX-License-Identifier: Apache-2.0
// PromptAssembly: what of a prompt is there already, and what has to run: prefix and segments found, then a schedule.
#pragma once

#include <memory>
#include <vector>

#include "engine/request.h"
#include "engine/reuse/corrections/corrector.h"
#include "engine/reuse/schedule.h"
#include "engine/steps/anchors.h"
#include "engine/steps/prefix_cache.h"
#include "engine/steps/reuse_costs.h"

namespace baton {

/// Prompts with these options begin with what is there of an earlier one, exactly. prefix and lockstep always do;
/// `reuse.prefix` says whether they keep their own for later ones.
bool takes_prefixes(const ReuseOptions& reuse);
bool keeps_prefixes(const ReuseOptions& reuse);

/// What a request's cache keeps beside keys and values.
KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range);

/// What a cache holds exactly before its request comes.
struct InPlace {
  std::int32_t placed = 0;  // positions [0, placed) came from a prefix
  std::int32_t ahead = 0;   // positions [placed, ahead) were computed before the prompt was complete
  std::int32_t length = 0;  // positions [placed, length) were computed
};

/// The engine's thread only.
class PromptAssembly {
 public:
  /// Finds what can be reused and makes the schedule, which is empty when all of the prompt is in place;
  /// `request.reuse.range` is valid where the method needs it.
  PromptAssembly(const GenerationRequest& request, std::span<const TokenId> prompt, Backend& backend,
                 const Model& model, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors, Corrector& corrector,
                 InPlace in_place = {}, ReuseCosts costs = {});

  /// Copies the prefix and the segments into the cache, but for those that are still on their way from host memory.
  void place(Backend& backend, RopeTable& angles, KvCache& cache);
  /// There are some of those.
  bool is_arriving() const { return arrived_ < layers_; }
  /// Copies those, up to a layer.
  void place_arrived(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t layer);

  /// The prompt is in the cache: its segments are not needed any more, but by what is learned of them.
  void let_go();

  /// Tokens that place() copied.
  std::int32_t placed_tokens() const { return placed_tokens_; }

  /// With method anchors; without slots otherwise.
  const AnchorTurn& anchor_turn() const { return turn_; }

  PromptSchedule schedule;
  std::vector<PartUse> uses;      // one for each part; their numbers are filled in by account()
  int hops = 0;                   // of what will be computed on top of this prompt
  std::int32_t exact_length = 0;  // positions [0, exact_length) will hold exact KV

  /// Position `at` was computed before the request came.
  bool computed(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.length; }
  /// And even before the prompt was complete.
  bool ahead(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.ahead; }

  /// computed[i]: layers whose KV was computed for position i; recomputed[i]: it was not left to its segment.
  void account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed, std::int32_t layers);

 private:
  std::shared_ptr<const Segment> usable(const GenerationRequest& request, const PromptPart& part, Backend& backend,
                                        const Model& model, SegmentStore& store, PartUse& use) const;

  bool correct(const AnchorSlot& slot, PlacedSegment& placed, PartUse& use) const;
  void bring(std::span<const std::shared_ptr<const Segment>> segments) const;
  bool comes_by_layer(std::size_t placed) const;
  void place(Backend& backend, RopeTable& angles, KvCache& cache, std::size_t placed, LayerSpan layers);

  InPlace in_place_;
  ReuseCosts costs_;
  bool tolerant_ = false;
  PrefixCache::Match prefix_;
  Anchors& anchors_;
  AnchorTurn turn_;
  AnchorOptions anchor_options_;
  std::vector<std::shared_ptr<const Segment>> pinned_;
  std::vector<PlacedSegment> placed_;
  std::vector<std::size_t> corrected_;  // beside placed_: the part that it is of
  Corrector& corrector_;
  std::vector<std::shared_ptr<const LinearCorrection>> learned_;  // of each part; null: none, or not asked for
  std::vector<std::int32_t> begins_;                              // of the parts, then the end of the last
  std::int32_t layers_ = 0;                                       // of the model
  std::int32_t arrived_ = 0;                                      // layers in which all is in the cache
  std::vector<std::size_t> late_pieces_;                          // of the prefix, that come by layer
  std::vector<std::size_t> late_;                                 // of placed_
  std::int32_t placed_tokens_ = 0;
};

}  // namespace baton
