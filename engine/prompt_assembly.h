// PromptAssembly: what of a prompt is there already, and what has to run: prefix and segments found, then a schedule.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "engine/reuse/schedule.h"

namespace baton {

/// What a request's cache keeps beside keys and values.
KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range);

/// The engine's thread only.
class PromptAssembly {
 public:
  /// Finds what can be reused and makes the schedule; `request.reuse.range` is valid where the method needs it.
  PromptAssembly(const GenerationRequest& request, std::span<const TokenId> prompt, const Model& model,
                 SegmentStore& store, PrefixCache& prefixes);

  /// Copies the prefix and the segments into the cache.
  void place(Backend& backend, const Rope& rope, KvCache& cache) const;

  PromptSchedule schedule;
  std::vector<PartUse> uses;      // one for each part; their numbers are filled in by account()
  int hops = 0;                   // of what will be computed on top of this prompt
  std::int32_t exact_length = 0;  // positions [0, exact_length) will hold exact KV

  /// computed[i]: layers whose KV was computed for position i; recomputed[i]: it was not left to its segment.
  void account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed, std::int32_t layers);

 private:
  std::shared_ptr<const Segment> usable(const GenerationRequest& request, const PromptPart& part, const Model& model,
                                        SegmentStore& store, PartUse& use) const;

  PrefixCache::Match prefix_;
  std::vector<std::shared_ptr<const Segment>> pinned_;
  std::vector<PlacedSegment> placed_;
  std::vector<std::int32_t> begins_;  // of the parts, then the end of the last
};

}  // namespace baton
