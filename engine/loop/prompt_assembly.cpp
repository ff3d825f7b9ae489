// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/prompt_assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/loop/kv_lookup.h"
#include "engine/loop/step_plan.h"

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
    use.lost = true;
    return nullptr;
  }
}

/// Returns the segment of a part if it can be placed, else null and the reason.
std::shared_ptr<const Segment> usable_segment(const AssemblyInput& input, const KvSources& from, const PromptPart& part,
                                              PartUse& use) {
  const ReuseOptions& reuse = input.request.reuse;
  SegmentStore& store = from.store;
  if (!takes_segments(reuse, input.decision)) {
    if (part.segment) use.reason = input.decision.reason;
    return nullptr;
  }
  const bool imported = !part.segment && part.imported_kv;
  if (!part.segment && !imported) {
    use.reason = part.why_no_kv;
    return nullptr;
  }
  const std::shared_ptr<const Segment> segment = imported ? part.imported_kv : store.peek(part.segment);
  const KvLayout expected = layout_for(input.request, from.model, input.decision.range);
  const std::int32_t enters = needs_hidden_states(*reuse.method) ? input.decision.range.start : 0;
  if (!segment) {
    use.reason = "its segment was evicted to stay within the memory budget";
    use.lost = true;
  } else if (segment->tokens() != part.tokens) {
    use.reason = "its segment holds other tokens";
  } else if (segment->length() < reuse.min_tokens) {
    use.reason = fmt::format("its segment has {} tokens; segments of fewer than {} are computed in full",
                             segment->length(), reuse.min_tokens);
  } else if (reuse.max_hops > 0 && segment->hops >= reuse.max_hops) {
    use.reason = fmt::format("its KV is {} hand-over{} away from exact KV; expected fewer than {}", segment->hops,
                             segment->hops == 1 ? "" : "s", reuse.max_hops);
  } else if (segment->layout().shapes != expected.shapes) {
    use.reason = "its segment is from another model";
  } else if (enters > 0 && (segment->layout().hidden_width != expected.hidden_width ||
                            segment->layout().hidden_layer != expected.hidden_layer)) {
    use.reason = fmt::format("its segment holds no hidden states of layer {}", enters);
  } else if (imported) {
    return upload_portable(segment, from.backend, use);
  } else {
    std::shared_ptr<const Segment> read = store.read(part.segment);
    if (!read) use.reason = "its segment is in host memory, and there is no device memory for it";
    use.lost = !read;
    return read;
  }
  store.use(part.segment);
  return nullptr;
}

}  // namespace

std::int32_t max_prefix(const GenerationRequest& request) {
  std::int32_t length = 0, to_record = -1;
  const bool records = request.reuse.record && !computes_ahead(*request.reuse.method);
  for (const PromptPart& part : request.prompt) {
    if (to_record < 0 && records && part.readers > 0) to_record = length;
    length += static_cast<std::int32_t>(part.tokens.size());
  }
  return to_record < 0 ? length - 1 : std::min(length - 1, to_record);
}

KvLayout layout_for(const ReuseOptions& reuse, bool keep_context, const Model& model, const LayerRange& range) {
  KvLayout layout = model.kv_layout();
  layout.raw_keys = reuse.record || keeps_prefixes(reuse) || keep_context;
  add_captured(layout, reuse, range, model.config.stream_width());
  return layout;
}

KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range) {
  return layout_for(request.reuse, request.keep_context, model, range);
}

PromptAssembly::PromptAssembly(const AssemblyInput& input, const KvSources& from)
    : decision_(&input.decision), in_place_(input.in_place), kv_(from.model.config.layers) {
  kv_.set_prefix(find_beginning(input, from));
  prefix_ = kv_.prefix_length();
  const auto length = static_cast<std::int32_t>(input.prompt.size());
  exact_length = length;
  if (continued_ > 0 && continued_ > input.request.context->exact) {
    exact_length = input.request.context->exact;
    hops = input.request.context->hops;
  }
  Segments segments = find_segments(input, from);
  kv_.start_uploads(segments);
  place(input, from, std::move(segments));
  const std::int32_t known = std::max(prefix_, in_place_.length);
  schedule = make_schedule(input.request.reuse, input.decision,
                           {length, known, kv_.placed(), from.model.config.layers, input.time});
  for (PartUse& use : uses) {
    if (use.from_segment && !schedule.note.empty()) use.reason = schedule.note;
  }
}

/// Returns the longest beginning that a prefix or the request's context has, if it is longer than what is in place.
PrefixCache::Match PromptAssembly::find_beginning(const AssemblyInput& input, const KvSources& from) {
  const GenerationRequest& request = input.request;
  PrefixCache::Match found;
  if (takes_prefixes(request.reuse)) {
    const std::int32_t longest = max_prefix(request);
    if (in_place_.length < longest)
      found = find_prefix(from.backend, from.prefixes, from.live, input.prompt, longest, in_place_.length);
    if (found.length <= in_place_.length) {
      found = {};
    } else {
      in_place_ = {};
    }
  }
  const std::int32_t there = context_length(request, input.decision, input.prompt, from.store);
  if (there <= std::max(found.length, in_place_.length)) return found;
  PrefixCache::Match kept = from.prefixes.read(*request.context, there);
  if (kept.length <= std::max(found.length, in_place_.length)) return found;
  in_place_ = {};
  continued_ = kept.length;
  return kept;
}

/// True when the cache holds the part's KV already, or a prefix does; `use` then says how it was obtained.
bool PromptAssembly::is_there(const AssemblyInput& input, const KvSources& from, std::size_t part, PartUse& use) {
  const ReuseOptions& reuse = input.request.reuse;
  const std::int32_t begin = begins_[part];
  const std::int32_t end = begin + static_cast<std::int32_t>(input.request.prompt[part].tokens.size());
  if (in_place_.placed < end && begin < in_place_.length) {
    const bool late = may_begin_tentatively(*reuse.method) &&  // its twin computed the part in full
                      in_place_.ahead <= std::max(begin, in_place_.placed);
    if (!late) use.method = &ahead_method(reuse);
    if (input.request.prompt[part].segment) use.reason = input.decision.reason;  // why it was not handed over
    return true;
  }
  if (end > std::max(prefix_, in_place_.length) || end == begin) return false;
  use.method = &prefix_method();
  if (hops > 0 && end > exact_length) use.hops = hops;
  from.store.use(input.request.prompt[part].segment);
  return true;
}

/// Returns the segment of each part; null: it has none that can be placed.
PromptAssembly::Segments PromptAssembly::find_segments(const AssemblyInput& input, const KvSources& from) {
  const std::vector<PromptPart>& prompt = input.request.prompt;
  std::int32_t at = 0;
  Segments segments(prompt.size());
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    begins_.push_back(at);
    at += static_cast<std::int32_t>(prompt[i].tokens.size());
    PartUse& use = uses.emplace_back();
    if (is_there(input, from, i, use)) continue;
    if (input.request.early != 0) use.reason = "not reached before its turn began";
    std::shared_ptr<const Segment> segment = usable_segment(input, from, prompt[i], use);
    if (segment && begins_[i] + segment->length() > prefix_) segments[i] = std::move(segment);
  }
  begins_.push_back(at);
  return segments;
}

/// Decides with the method which segments are placed.
void PromptAssembly::place(const AssemblyInput& input, const KvSources& from, Segments segments) {
  const GenerationRequest& request = input.request;
  MethodState* state = from.states.of(*request.reuse.method);
  std::unique_ptr<PromptTexts> texts =
      state != nullptr ? state->look({request.reuse, request.prompt, request.reader, segments, from.corrections})
                       : nullptr;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i]) continue;
    PartUse& use = uses[i];
    PlacedSegment placed{begins_[i], segments[i].get()};
    placed.imported = !request.prompt[i].segment;
    if (texts && !texts->place(i, placed, use)) continue;
    use.method = &segment_method(request.reuse);
    if (std::string reason = reason_of(input.decision); !reason.empty()) use.reason = std::move(reason);
    use.from_segment = true;
    use.hops = segments[i]->hops;
    hops = std::max(hops, segments[i]->hops + 1);
    exact_length = std::min(exact_length, std::max(begins_[i], prefix_));
    const std::int32_t end = placed.end();
    kv_.add(i, std::move(placed), std::move(segments[i]));
    const std::int32_t following = texts ? texts->following(i) : 0;
    if (following > 0 && end >= prefix_) kv_.add(i, {end, nullptr, {}, following});
  }
  kv_.set_texts(std::move(texts));
}

void PromptAssembly::make_exact(std::int32_t length, std::int32_t layers, const std::string& reason) {
  schedule = make_schedule({}, {length, exact_length, {}, layers});
  continued_ = std::min(continued_, exact_length);
  prefix_ = std::min(prefix_, exact_length);
  for (PartUse& use : uses) {
    if (!use.from_segment && use.hops == 0) continue;
    use = {};
    use.reason = reason;
  }
  exact_length = length;
  hops = 0;
}

void PromptAssembly::account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed,
                             std::int32_t layers) {
  std::vector<std::int32_t> least(static_cast<std::size_t>(begins_.back()), 0);
  for (std::int32_t at = in_place_.placed; at < in_place_.length; ++at) least[static_cast<std::size_t>(at)] = layers;
  for (const ScheduledRow& row : schedule.rows) {
    if (row.position < begins_.back()) least[static_cast<std::size_t>(row.position)] = row.path.computed();
  }
  for (std::size_t part = 0; part < uses.size(); ++part) {
    PartUse& use = uses[part];
    use.kv_reused = use.kv_reusable = use.reused_tokens = use.ahead_tokens = 0;
    for (std::int32_t at = begins_[part]; at < begins_[part + 1]; ++at) {
      use.kv_reused += layers - computed[static_cast<std::size_t>(at)];
      use.kv_reusable += layers - least[static_cast<std::size_t>(at)];
      use.reused_tokens += recomputed[static_cast<std::size_t>(at)] ? 0 : 1;
      use.ahead_tokens += ahead(at) ? 1 : 0;
    }
  }
}

void PlacedKv::add(std::size_t part, PlacedSegment placed, std::shared_ptr<const Segment> pin) {
  placed_.push_back(std::move(placed));
  parts_.push_back(part);
  if (pin) pinned_.push_back(std::move(pin));
}

void PlacedKv::start_uploads(std::span<const std::shared_ptr<const Segment>> segments) const {
  for (std::int32_t layer = 0; layer < layers_; layer += upload_group(layers_)) {
    for (const PrefixCache::Piece& piece : prefix_.pieces) piece.segment->upload(layer);
    for (const std::shared_ptr<const Segment>& segment : segments) {
      if (segment) segment->upload(layer);
    }
  }
}

bool PlacedKv::uploads_by_layer(std::size_t placed) const {
  const Segment* segment = placed_[placed].segment;
  return segment != nullptr && segment->is_uploading() && (!texts_ || texts_->by_layer(parts_[placed]));
}

void PlacedKv::insert(Backend& backend, RopeTable& angles, KvCache& cache) {
  for (std::size_t i = 0; i < prefix_.pieces.size(); ++i) {
    const PrefixCache::Piece& piece = prefix_.pieces[i];
    if (piece.segment->is_uploading()) {
      late_pieces_.push_back(i);
      continue;
    }
    baton::insert(backend, angles, cache, {piece.begin, piece.segment.get(), 0, piece.count});
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
  prefix_.put_state(cache);
  prefix_.state.reset();
  if (late_pieces_.empty()) prefix_.pieces.clear();  // frees the copy of a live cache
  if (late_.empty() && late_pieces_.empty()) arrived_ = layers_;
}

void PlacedKv::insert_uploaded(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t layer) {
  while (arrived_ <= std::min(layer, layers_ - 1)) {
    const LayerSpan layers{arrived_, arrived_ + upload_group(layers_)};
    for (const std::size_t i : late_pieces_) {
      const PrefixCache::Piece& piece = prefix_.pieces[i];
      baton::insert(backend, angles, cache, {piece.begin, piece.segment.get(), 0, piece.count, layers});
    }
    for (const std::size_t i : late_) insert(backend, angles, cache, i, layers);
    arrived_ = layers.end;
  }
}

void PlacedKv::insert(Backend& backend, RopeTable& angles, KvCache& cache, std::size_t i, LayerSpan layers) {
  const PlacedSegment& placed = placed_[i];
  const std::int32_t first = std::max(0, prefix_.length - placed.begin);  // the prefix may reach into a segment
  if (texts_ && texts_->insert(angles, cache, parts_[i], placed, first, layers)) return;
  baton::insert(backend, angles, cache, {placed.begin + first, placed.segment, first, placed.length() - first, layers});
}

void PlacedKv::release() {
  prefix_.pieces.clear();
  placed_.clear();
  pinned_.clear();
  if (texts_) texts_->release();
}

void PlacedKv::learn(const KvCache& cache) const {
  if (texts_) texts_->learn(cache);
}

PromptProgress::PromptProgress(const GenerationRequest& request, GenerationResult& result, std::int32_t length,
                               std::int32_t layers)
    : request_(request), result_(result), length_(length), layers_(layers) {
  result_.prompt_tokens = length_;
  result_.kv_entries = static_cast<std::int64_t>(length_) * layers_;
}

void PromptProgress::start(PromptAssembly assembly, const PrefillTimes& times, KvCache& cache) {
  assembly_.emplace(std::move(assembly));
  sparse_ = sparse_layers_of(assembly_->schedule, layers_);
  detection_ends_.assign(assembly_->schedule.detections.size(), 0);
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const std::int32_t detection = rows()[i].path.detection;
    if (detection >= 0) detection_ends_[static_cast<std::size_t>(detection)] = i + 1;
  }
  for (std::size_t d = 0; d < detection_ends_.size(); ++d) {  // with the readers behind them
    std::size_t& end = detection_ends_[d];
    while (end < rows().size() && rows()[end].position < assembly_->schedule.detections[d].readers_end) ++end;
  }
  computed_.assign(static_cast<std::size_t>(length_), 0);
  recomputed_.assign(static_cast<std::size_t>(length_), false);
  result_.prefill = times;
  result_.hops = assembly_->hops;
  if (assembly_->hops > 0) result_.expected_nats = assembly_->decision().predicted;
  for (std::int32_t at = 0; at < length_; ++at) {
    if (!assembly_->computed(at)) continue;
    computed_[static_cast<std::size_t>(at)] = layers_;
    recomputed_[static_cast<std::size_t>(at)] = true;
    if (assembly_->ahead(at)) result_.kv_ahead += layers_;
  }
  cache.commit(rows().empty() ? length_ : rows().front().position);  // positions before the first row hold KV
}

void PromptProgress::drop() {
  assembly_.reset();
  next_row_ = 0;
  ended_ = false;
}

std::int32_t PromptProgress::add_rows(std::int32_t share, std::span<const TokenId> tokens, KvCache& cache,
                                      StepRows& step) {
  const std::int32_t index = step.add_cache(&cache);
  std::int32_t from = -1;  // the schedule's detection that the newest one of the step maps to
  std::size_t at = next_row_;
  std::size_t whole = next_row_;  // all rows of a detection run in one step, with the rows between them
  for (; at < rows().size() && (static_cast<std::int32_t>(at - next_row_) < share || at < whole); ++at) {
    const ScheduledRow& row = rows()[at];
    if (row.path.detection >= 0) whole = std::max(whole, detection_ends_[static_cast<std::size_t>(row.path.detection)]);
    step.add_row(index, row.position, tokens[static_cast<std::size_t>(row.position)]);
    RowPath path = row.path;
    if (path.detection >= 0) {
      if (path.detection != from) {
        from = path.detection;
        step.detections.push_back(assembly_->schedule.detections[static_cast<std::size_t>(from)]);
      }
      path.detection = static_cast<std::int32_t>(step.detections.size()) - 1;
    }
    step.path.push_back(path);
  }
  return static_cast<std::int32_t>(at - next_row_);
}

void PromptProgress::commit(std::span<const RowPath> paths, const StepTimes& times, KvCache& cache) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const ScheduledRow& row = rows()[next_row_ + i];
    const auto at = static_cast<std::size_t>(row.position);
    computed_[at] = paths[i].computed();
    // A group of layers of another model's KV, without a choice of tokens.
    const bool grouped = row.path.anew && row.path.detection < 0 && paths[i].computed() < layers_;
    recomputed_[at] = !grouped && (row.path.detection < 0 || paths[i].leave > row.path.leave);
  }
  next_row_ += paths.size();
  cache.commit(is_complete() ? rows().back().position + 1 : rows()[next_row_].position);
  if (ended_ && is_complete()) count();

  PrefillTimes& phases = result_.prefill;
  for (std::int32_t layer = 0; layer < layers_; ++layer) {
    (layer < sparse_.begin ? phases.full_layers
     : layer < sparse_.end ? phases.sparse_layers
                           : phases.tail) += times.layer[static_cast<std::size_t>(layer)];
  }
  phases.copy += times.before_layer;
  phases.detect += times.detect;
  phases.tail += times.other;
}

bool PromptProgress::fall_back(KvCache& cache) {
  if (ended_ || !is_complete() || !assembly_->schedule.guard) return false;
  result_.guard_left = assembly_->schedule.guard->left;
  const float bound = assembly_->decision().max_left;
  if (bound > 0.0f) result_.guard_nats = result_.guard_left * assembly_->decision().tolerance / bound;
  if (bound < 0.0f || result_.guard_left <= bound) return false;
  compute_exactly(length_,
                  fmt::format("the guard measured a change of {:.2g}; at most {:.2g} is expected to stay within "
                              "{:.2g} nats",
                              result_.guard_left, bound, assembly_->decision().tolerance),
                  cache);
  return true;
}

void PromptProgress::compute_exactly(std::int32_t length, const std::string& reason, KvCache& cache) {
  computed_.resize(static_cast<std::size_t>(length), layers_);
  recomputed_.resize(static_cast<std::size_t>(length), true);
  cache.truncate(assembly_->exact_length);  // before it counts as exact, and what follows may throw
  assembly_->make_exact(length, layers_, reason);
  result_.uses = assembly_->uses;
  sparse_ = sparse_layers_of(assembly_->schedule, layers_);
  detection_ends_.clear();
  next_row_ = 0;
  result_.hops = 0;
}

void PromptProgress::count() {
  result_.kv_computed = std::accumulate(computed_.begin(), computed_.begin() + length_, std::int64_t{0});
  assembly_->account(computed_, recomputed_, layers_);
  result_.uses = assembly_->uses;
  result_.continued_tokens = assembly_->recordable();
}

void PromptProgress::on_step_begin(Clock::time_point now, Clock::time_point submitted) {
  if (first_step_ != Clock::time_point{}) return;
  first_step_ = now;
  result_.queue_ms = milliseconds(now - submitted);
}

void PromptProgress::report(Clock::time_point now, int interval_ms, const KvCache& cache) {
  if (ended_ || is_complete() || next_row_ == 0 || !request_.callbacks.on_prefill_progress) return;
  if (now - std::max(reported_, first_step_) < std::chrono::milliseconds(interval_ms)) return;
  reported_ = now;
  request_.callbacks.on_prefill_progress(cache.length(), length_);
}

bool PromptProgress::end() {
  if (ended_) return false;
  ended_ = true;
  prefilled_at_ = Clock::now();
  result_.prefill_ms = milliseconds(prefilled_at_ - first_step_);
  count();
  assembly_->kv().release();
  return true;
}

double PromptProgress::deadline(double row_ms, Clock::time_point submitted) const {
  return prompt_deadline(milliseconds(submitted.time_since_epoch()), row_ms * static_cast<double>(rows().size()));
}

}  // namespace baton
