// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/prompt_assembly.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/loop/contexts.h"
#include "engine/reuse/auto/levels.h"
#include "engine/reuse/placement.h"
#include "engine/reuse/rectify/selection.h"

namespace baton {
namespace {

/// Returns the segment in memory that the backend can read, or null and a reason.
std::shared_ptr<const Segment> upload_portable(const std::shared_ptr<const Segment>& segment, Backend& backend,
                                               PartUse& use) {
  if (backend.info().host_memory) return segment;
  struct Held {
    std::shared_ptr<const Segment> source, copy;  // the source outlives the copy, with the memory of its engine
  };
  try {
    const auto held = std::make_shared<Held>(Held{segment, segment->copy_to(backend)});
    return {held, held->copy.get()};
  } catch (const BackendError&) {
    use.reason = "there is no device memory for its segment, which is from another model";
    return nullptr;
  }
}

}  // namespace

bool keeps_prefixes(const ReuseOptions& reuse) {
  return reuse.method->prefixes != Method::Prefixes::never && reuse.prefix;
}

bool takes_prefixes(const ReuseOptions& reuse) {
  return reuse.method->prefixes == Method::Prefixes::always || keeps_prefixes(reuse);
}

std::int32_t max_prefix(const GenerationRequest& request) {
  std::int32_t length = 0, to_record = -1;
  const bool records = request.reuse.record && !request.reuse.method->ahead;  // auto prefers the exact prefix
  for (const PromptPart& part : request.prompt) {
    if (to_record < 0 && records && part.readers > 0) to_record = length;
    length += static_cast<std::int32_t>(part.tokens.size());
  }
  return to_record < 0 ? length - 1 : std::min(length - 1, to_record);
}

KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range) {
  KvLayout layout = model.kv_layout();
  const ReuseOptions& reuse = request.reuse;
  layout.raw_keys = reuse.record || keeps_prefixes(reuse) || request.keep_context;
  const bool for_relay = reuse.record && (reuse.method->segments || !reuse.method->ahead);
  layout.received = for_relay && reads_attention(reuse);
  if (range.start > 0 && (for_relay || reuse.method->hidden_states)) {
    layout.hidden_width = model.config.width;
    layout.hidden_layer = range.start;
  }
  return layout;
}

PromptAssembly::PromptAssembly(const GenerationRequest& request, std::span<const TokenId> prompt, Backend& backend,
                               const Model& model, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors,
                               Corrector& corrector, std::span<const LivePrefix> live, InPlace in_place,
                               PromptTime time)
    : in_place_(in_place),
      anchors_(anchors),
      anchor_options_(request.reuse.anchors),
      corrector_(corrector),
      layers_(model.config.layers) {
  const auto length = static_cast<std::int32_t>(prompt.size());
  if (takes_prefixes(request.reuse)) {
    const std::int32_t longest = max_prefix(request);
    if (in_place_.length < longest) prefix_ = find_prefix(backend, prefixes, live, prompt, longest, in_place_.length);
    if (prefix_.length <= in_place_.length) {
      prefix_ = {};
    } else {
      in_place_ = {};
    }
  }
  if (const std::int32_t there = context_length(request, prompt, store);
      there > std::max(prefix_.length, in_place_.length)) {
    PrefixCache::Match kept = prefixes.read(*request.context, there);
    if (kept.length > std::max(prefix_.length, in_place_.length)) {
      prefix_ = std::move(kept);
      in_place_ = {};
      continued_ = prefix_.length;
    }
  }
  const std::int32_t known = std::max(prefix_.length, in_place_.length);
  exact_length = length;
  if (continued_ > 0 && continued_ > request.context->exact) {
    exact_length = request.context->exact;
    hops = request.context->hops;
  }
  std::int32_t at = 0;
  std::vector<std::shared_ptr<const Segment>> segments(request.prompt.size());
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const PromptPart& part = request.prompt[i];
    const std::int32_t begin = at;
    begins_.push_back(begin);
    at += static_cast<std::int32_t>(part.tokens.size());
    PartUse& use = uses.emplace_back();
    if (in_place_.placed < at && begin < in_place_.length) {
      const bool late = request.reuse.method->id == MethodId::verified &&  // its twin computed the part in full
                        in_place_.ahead <= std::max(begin, in_place_.placed);
      if (!late) use.method = &ahead_method(request.reuse);
      continue;
    }
    if (at <= known && at > begin) {
      use.method = &method_of(MethodId::prefix);
      if (hops > 0 && at > exact_length) use.hops = hops;
      store.use(part.segment);
      continue;
    }
    if (request.early != 0) use.reason = "not reached before its turn began";
    std::shared_ptr<const Segment> segment = usable(request, part, backend, model, store, use);
    if (segment && begin + segment->length() > prefix_.length) segments[i] = std::move(segment);
  }
  begins_.push_back(at);
  start_uploads(segments);
  const bool anchored = request.reuse.method->anchors;
  if (anchored) turn_ = anchors_.look(request, anchor_options_, segments);
  learned_.resize(segments.size());
  if (request.reuse.method->corrections && request.reuse.correct) {
    const std::vector<AnchorKey> places = places_of(request.prompt, {});
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (segments[i]) learned_[i] = corrector_.find(places[i]);
    }
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i]) continue;
    PartUse& use = uses[i];
    PlacedSegment placed{begins_[i], segments[i].get()};
    if (anchored && !correct(*turn_.slots[i], placed, use)) continue;
    use.method = &segment_method(request.reuse);
    if (request.reuse.predicted >= 0.0f) {
      use.reason =
          measured_turns(request.reuse.turns) + fmt::format("{:.0f} % of it reused; {:.2g} nats expected",
                                                            100 * request.reuse.reuse, request.reuse.predicted);
    }
    use.from_segment = true;
    use.corrected = learned_[i] != nullptr;
    use.hops = segments[i]->hops;
    hops = std::max(hops, segments[i]->hops + 1);
    exact_length = std::min(exact_length, std::max(begins_[i], prefix_.length));
    placed_.push_back(std::move(placed));
    const bool text = anchored && anchor_options_.text != AnchorOptions::Text::computed &&
                      turn_.slots[i]->following > 0 && placed_.back().end() >= prefix_.length;
    if (text) placed_.push_back({placed_.back().end(), nullptr, {}, turn_.slots[i]->following});
    corrected_.resize(placed_.size(), i);
    pinned_.push_back(std::move(segments[i]));
  }
  const ScheduleInput input{length, known, placed_, model.config.layers, time};
  schedule = make_schedule(request.reuse, input);
  if (request.reuse.ttft_ms > 0.0) say_group(group_in_time(request.reuse, input));
}

/// Says which group of layers the time allowed.
void PromptAssembly::say_group(const LayerRange& group) {
  for (PartUse& use : uses) {
    if (use.from_segment) use.reason = fmt::format("layers {} to {} recomputed", group.start, group.end);
  }
}

/// Applies the anchors' choice to a slot. Returns false when the slot is to be computed in full.
bool PromptAssembly::correct(const AnchorSlot& slot, PlacedSegment& placed, PartUse& use) const {
  const AnchorChoice& choice = slot.choice;
  use.reason = choice.reason;
  use.anchors = {static_cast<std::int32_t>(choice.anchors.size()), choice.ambiguity, choice.distance, choice.error};
  if (turn_.learning || choice.kind == AnchorChoice::Kind::refuse) return false;
  if (choice.kind == AnchorChoice::Kind::refine) {
    SelectionOptions uncertain;
    uncertain.share = anchor_options_.recompute;
    uncertain.suffix = 0;
    const std::span<const float> entropy = slot.segment->entropy;
    const std::vector<float> mismatch =
        choice.mismatch(slot.length());  // texts that were not generated have no entropy
    placed.recompute = select_by_entropy(uncertain, entropy.empty() ? mismatch : entropy);
  }
  return true;
}

std::shared_ptr<const Segment> PromptAssembly::usable(const GenerationRequest& request, const PromptPart& part,
                                                      Backend& backend, const Model& model, SegmentStore& store,
                                                      PartUse& use) const {
  if (!takes_segments(request.reuse)) {
    if (part.segment) use.reason = request.reuse.exact_because;
    return nullptr;
  }
  const bool imported = !part.segment && part.imported_kv;
  if (!part.segment && !imported) {
    use.reason = part.why_no_kv;
    return nullptr;
  }
  const std::shared_ptr<const Segment> segment = imported ? part.imported_kv : store.peek(part.segment);
  const KvLayout expected = layout_for(request, model, request.reuse.range);
  const bool injects = request.reuse.method->hidden_states;
  if (!segment) {
    use.reason = "its segment was evicted to stay within the memory budget";
  } else if (segment->tokens() != part.tokens) {
    use.reason = "its segment holds other tokens";
  } else if (segment->length() < request.reuse.min_tokens) {
    use.reason = fmt::format("its segment has {} tokens; segments of fewer than {} are computed in full",
                             segment->length(), request.reuse.min_tokens);
  } else if (request.reuse.max_hops > 0 && segment->hops >= request.reuse.max_hops) {
    use.reason = fmt::format("its KV is {} hand-over{} away from exact KV; expected fewer than {}", segment->hops,
                             segment->hops == 1 ? "" : "s", request.reuse.max_hops);
  } else if (segment->layout().layers != expected.layers || segment->layout().shape != expected.shape) {
    use.reason = "its segment is from another model";
  } else if (injects && request.reuse.range.start > 0 &&
             (segment->layout().hidden_width != expected.hidden_width ||
              segment->layout().hidden_layer != expected.hidden_layer)) {
    use.reason = fmt::format("its segment holds no hidden states of layer {}", request.reuse.range.start);
  } else if (imported) {
    return upload_portable(segment, backend, use);
  } else {
    std::shared_ptr<const Segment> read = store.read(part.segment);
    if (!read) use.reason = "its segment is in host memory, and there is no device memory for it";
    return read;
  }
  store.use(part.segment);
  return nullptr;
}

/// Starts the uploads of segments in host memory, layer by layer over all segments.
void PromptAssembly::start_uploads(std::span<const std::shared_ptr<const Segment>> segments) const {
  for (std::int32_t layer = 0; layer < layers_; layer += Segment::layers_per_group(layers_)) {
    for (const PrefixCache::Piece& piece : prefix_.pieces) piece.segment->upload(layer);
    for (const std::shared_ptr<const Segment>& segment : segments) {
      if (segment) segment->upload(layer);
    }
  }
}

/// A learned correction needs all layers at once, so corrected segments are not placed by layer.
bool PromptAssembly::uploads_by_layer(std::size_t placed) const {
  const Segment* segment = placed_[placed].segment;
  return segment != nullptr && segment->is_uploading() && !learned_[corrected_[placed]];
}

void PromptAssembly::insert(Backend& backend, RopeTable& angles, KvCache& cache) {
  for (std::size_t i = 0; i < prefix_.pieces.size(); ++i) {
    const PrefixCache::Piece& piece = prefix_.pieces[i];
    if (piece.segment->is_uploading()) {
      late_pieces_.push_back(i);
      continue;
    }
    baton::insert(backend, angles, cache, piece.begin, *piece.segment, 0, piece.count);
    placed_tokens_ += piece.count;
  }
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    if (uploads_by_layer(i)) {
      late_.push_back(i);
      continue;
    }
    insert(backend, angles, cache, i, {});
    placed_tokens_ += placed_[i].length();
  }
  if (late_pieces_.empty()) prefix_.pieces.clear();  // frees the copy of a live cache
  if (late_.empty() && late_pieces_.empty()) arrived_ = layers_;
}

void PromptAssembly::insert_uploaded(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t layer) {
  while (arrived_ <= std::min(layer, layers_ - 1)) {
    const LayerSpan layers{arrived_, arrived_ + Segment::layers_per_group(layers_)};
    for (const std::size_t i : late_pieces_) {
      const PrefixCache::Piece& piece = prefix_.pieces[i];
      baton::insert(backend, angles, cache, piece.begin, *piece.segment, 0, piece.count, layers);
    }
    for (const std::size_t i : late_) insert(backend, angles, cache, i, layers);
    arrived_ = layers.end;
  }
}

void PromptAssembly::insert(Backend& backend, RopeTable& angles, KvCache& cache, std::size_t i, LayerSpan layers) {
  const PlacedSegment& placed = placed_[i];
  const std::int32_t first = std::max(0, prefix_.length - placed.begin);  // the prefix may reach into a segment
  if (const auto& learned = learned_[corrected_[i]]) {
    corrector_.insert(angles, cache, placed.begin, *placed.segment, first, *learned);
  } else if (turn_.slots.empty()) {
    baton::insert(backend, angles, cache, placed.begin + first, *placed.segment, first, placed.length() - first,
                  layers);
  } else if (placed.segment != nullptr) {
    anchors_.insert(angles, cache, *turn_.slots[corrected_[i]], first, anchor_options_, layers);
  } else {
    anchors_.insert_text(angles, cache, *turn_.slots[corrected_[i]], anchor_options_);
  }
}

void PromptAssembly::make_exact(std::int32_t length, std::int32_t layers, const std::string& reason) {
  schedule = make_schedule({}, {length, exact_length, {}, layers});
  continued_ = std::min(continued_, exact_length);
  prefix_.length = std::min(prefix_.length, exact_length);
  for (PartUse& use : uses) {
    if (!use.from_segment && use.hops == 0) continue;
    use = {};
    use.reason = reason;
  }
  exact_length = length;
  hops = 0;
}

void PromptAssembly::release_segments() {
  prefix_.pieces.clear();
  placed_.clear();
  pinned_.clear();
  if (!turn_.learning) turn_.slots.clear();
}

void PromptAssembly::account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed,
                             std::int32_t layers) {
  std::vector<std::int32_t> least(static_cast<std::size_t>(begins_.back()), 0);
  for (std::int32_t at = in_place_.placed; at < in_place_.length; ++at) least[static_cast<std::size_t>(at)] = layers;
  for (const ScheduledRow& row : schedule.rows) least[static_cast<std::size_t>(row.position)] = row.path.computed();
  for (std::size_t part = 0; part < uses.size(); ++part) {
    PartUse& use = uses[part];
    for (std::int32_t at = begins_[part]; at < begins_[part + 1]; ++at) {
      use.kv_reused += layers - computed[static_cast<std::size_t>(at)];
      use.kv_reusable += layers - least[static_cast<std::size_t>(at)];
      use.reused_tokens += recomputed[static_cast<std::size_t>(at)] ? 0 : 1;
      use.ahead_tokens += ahead(at) ? 1 : 0;
    }
  }
}

}  // namespace baton
