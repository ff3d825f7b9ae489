// SPDX-License-Identifier: Apache-2.0
// PromptAssembly: finds the prefix and the segments that a prompt can reuse, and makes the schedule of the rest.
// PlacedKv: copies them into the request's cache. PromptProgress: tracks how far a sequence's prompt has run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/loop/kv_lookup.h"
#include "engine/model/step.h"
#include "engine/reuse/method_state.h"

namespace baton {

/// Returns the number of first tokens of the prompt that an exact prefix may hold. It excludes the last token, and ends
/// before a part that becomes a segment, since a prefix has neither the hidden states nor the attention of a segment.
/// With a method that computes ahead, the prefix has priority: such a part does not become a segment.
std::int32_t max_prefix(const GenerationRequest& request);

/// Returns the layout of a request's cache, with what it keeps in addition to keys and values.
KvLayout layout_for(const ReuseOptions& reuse, bool keep_context, const Model& model, const LayerRange& range);
KvLayout layout_for(const GenerationRequest& request, const Model& model, const LayerRange& range);

/// The exact KV that a cache holds before the prompt is assembled.
struct InPlace {
  std::int32_t placed = 0;  // positions [0, placed) came from a prefix
  std::int32_t ahead = 0;   // positions [placed, ahead) were computed ahead, see PromptAssembly::ahead()
  std::int32_t length = 0;  // positions [placed, length) were computed
};

/// A prompt to assemble.
struct AssemblyInput {
  const GenerationRequest& request;
  const ReuseDecision& decision;
  std::span<const TokenId> prompt;
  InPlace in_place{};
  PromptTime time{};
};

/// Where reusable KV may come from.
struct KvSources {
  Backend& backend;
  const Model& model;
  SegmentStore& store;
  PrefixCache& prefixes;
  const MethodStates& states;
  std::shared_ptr<const Corrections> corrections{};
  std::span<const LivePrefix> live{};  // other sequences, from whose caches a prefix may be copied
};

/// The reused KV of one prompt, until it is in the cache. Used by the engine's thread only.
class PlacedKv {
 public:
  explicit PlacedKv(std::int32_t layers) : layers_(layers) {}

  void set_prefix(PrefixCache::Match prefix) { prefix_ = std::move(prefix); }
  std::int32_t prefix_length() const { return prefix_.length; }
  void set_texts(std::unique_ptr<PromptTexts> texts) { texts_ = std::move(texts); }
  /// Adds the KV of a part; `pin` keeps its segment alive.
  void add(std::size_t part, PlacedSegment placed, std::shared_ptr<const Segment> pin = {});
  const std::vector<PlacedSegment>& placed() const { return placed_; }

  /// Starts the uploads of segments in host memory, layer by layer over all segments.
  void start_uploads(std::span<const std::shared_ptr<const Segment>> segments) const;
  /// Copies the prefix and the segments into the cache, except those that are still being uploaded.
  void insert(Backend& backend, RopeTable& angles, KvCache& cache);
  /// True when some reused KV is still being uploaded.
  bool is_uploading() const { return arrived_ < layers_; }
  /// Copies the KV that was still being uploaded, up to and including a layer.
  void insert_uploaded(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t layer);
  /// Number of tokens that insert() copied.
  std::int32_t placed_tokens() const { return placed_tokens_; }

  /// Unpins the segments once the prompt is in the cache, except what the method still learns from.
  void release();
  void learn(const KvCache& cache) const;

 private:
  bool uploads_by_layer(std::size_t placed) const;
  void insert(Backend& backend, RopeTable& angles, KvCache& cache, std::size_t placed, LayerSpan layers);

  PrefixCache::Match prefix_;
  std::unique_ptr<PromptTexts> texts_;  // null: texts are placed uncorrected
  std::vector<std::shared_ptr<const Segment>> pinned_;
  std::vector<PlacedSegment> placed_;
  std::vector<std::size_t> parts_;        // parallel to placed_: index of the part
  std::int32_t layers_ = 0;               // L
  std::int32_t arrived_ = 0;              // layers in which all reused KV is in the cache
  std::vector<std::size_t> late_pieces_;  // pieces of the prefix that are uploaded by layer
  std::vector<std::size_t> late_;         // indices into placed_ of segments that are uploaded by layer
  std::int32_t placed_tokens_ = 0;
};

/// Used by the engine's thread only.
class PromptAssembly {
 public:
  /// Finds the reusable KV and makes the schedule, which is empty if the cache already holds all of the prompt. The
  /// decision's layer range must be valid if the method needs one; the decision must outlive the assembly.
  PromptAssembly(const AssemblyInput& input, const KvSources& from);

  /// The decision about how the request reuses KV.
  const ReuseDecision& decision() const { return *decision_; }

  /// The KV that is copied into the cache.
  PlacedKv& kv() { return kv_; }
  const PlacedKv& kv() const { return kv_; }

  /// Replaces the schedule, after it has run, by one that computes every position after the exact ones, up to `length`.
  void make_exact(std::int32_t length, std::int32_t layers, const std::string& reason);

  PromptSchedule schedule;
  std::vector<PartUse> uses;      // one for each part; account() fills in the counts
  int hops = 0;                   // hops of KV computed after this prompt
  std::int32_t exact_length = 0;  // positions [0, exact_length) will hold exact KV

  /// Number of first positions that were copied from a prefix or a context. Only later positions hold all data that a
  /// segment keeps.
  std::int32_t recordable() const { return std::max(prefix_, in_place_.placed); }

  /// Number of first tokens whose KV comes from the request's context.
  std::int32_t continued() const { return continued_; }

  /// True when position `at` was computed before this assembly began.
  bool computed(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.length; }
  /// True when position `at` was computed ahead: before all of the prompt was known or, if all of it was known from the
  /// beginning, before its request came.
  bool ahead(std::int32_t at) const { return in_place_.placed <= at && at < in_place_.ahead; }

  /// Fills in the counts of `uses`. computed[i]: number of layers whose KV was computed for position i; recomputed[i]:
  /// the method recomputed position i.
  void account(std::span<const std::int32_t> computed, const std::vector<bool>& recomputed, std::int32_t layers);

 private:
  using Segments = std::vector<std::shared_ptr<const Segment>>;

  PrefixCache::Match find_beginning(const AssemblyInput& input, const KvSources& from);
  Segments find_segments(const AssemblyInput& input, const KvSources& from);
  bool is_there(const AssemblyInput& input, const KvSources& from, std::size_t part, PartUse& use);
  void place(const AssemblyInput& input, const KvSources& from, Segments segments);

  const ReuseDecision* decision_;  // how the request reuses KV
  InPlace in_place_;
  std::int32_t prefix_ = 0;  // positions [0, prefix_) are copied from a prefix
  std::int32_t continued_ = 0;
  std::vector<std::int32_t> begins_;  // begin of each part, then the end of the last part
  PlacedKv kv_;
};

/// How far a sequence's prompt has run. It knows the schedule's rows, counts what was computed, and falls back to exact
/// rows if the prompt's guard measured too large a change. Used by the engine's thread only. The request and the result
/// must outlive the object.
class PromptProgress {
 public:
  /// `length`: tokens of the prompt; `layers`: layers of the model.
  PromptProgress(const GenerationRequest& request, GenerationResult& result, std::int32_t length, std::int32_t layers);

  /// Makes the rows of the assembly's schedule runnable. `cache` must hold all reused KV.
  void start(PromptAssembly assembly, const PrefillTimes& times, KvCache& cache);
  /// Drops the assembly; start() may be called again.
  void drop();
  const PromptAssembly& assembly() const { return *assembly_; }
  PromptAssembly& assembly() { return *assembly_; }

  /// Number of rows left to run.
  std::int32_t pending() const { return static_cast<std::int32_t>(rows().size() - next_row_); }
  /// True when all rows have run, so that the sequence decodes.
  bool is_complete() const { return assembly_ && next_row_ == rows().size(); }
  /// Adds the next `share` rows to a step, or more if that would split a detection. Returns the number of rows.
  std::int32_t add_rows(std::int32_t share, std::span<const TokenId> tokens, KvCache& cache, StepRows& step);
  /// Reports that the step succeeded. `paths`: the layers that each added row actually ran through.
  void commit(std::span<const RowPath> paths, const StepTimes& times, KvCache& cache);
  /// If all rows have run and the guard measured too large a change, replaces the schedule by an exact one that begins
  /// with the first approximate token. Returns true in that case; the logits of the step are then not those of the
  /// prompt.
  bool fall_back(KvCache& cache);

  /// Replaces the schedule, all of whose rows have run, by an exact one up to position `length`, which may be after
  /// the prompt: the answer so far is then computed again, too, and so are the logits after it.
  void compute_exactly(std::int32_t length, const std::string& reason, KvCache& cache);

  /// Reports that the sequence takes part in its first step. `submitted`: when its request was submitted.
  void on_step_begin(Clock::time_point now, Clock::time_point submitted);
  /// Calls on_prefill_progress if rows are left, some have run since the prompt began or fell back, and the last call
  /// was at least `interval_ms` ago.
  void report(Clock::time_point now, int interval_ms, const KvCache& cache);
  /// Writes the counts and times of the prompt to the result. Called when the logits of its last token are available.
  /// Returns true on the first call; later calls have no effect and return false.
  bool end();
  /// The time at which the logits of the prompt's last token were available.
  Clock::time_point prefilled_at() const { return prefilled_at_; }
  /// See prompt_deadline(). `row_ms`: time of a row.
  double deadline(double row_ms, Clock::time_point submitted) const;

  /// Number of first tokens whose KV was added to the prefix cache while the sequence ran.
  std::int32_t stored() const { return stored_; }
  void set_stored(std::int32_t tokens) { stored_ = tokens; }

 private:
  const std::vector<ScheduledRow>& rows() const { return assembly_->schedule.rows; }
  void count();

  const GenerationRequest& request_;
  GenerationResult& result_;
  std::int32_t length_;
  std::int32_t layers_;
  std::optional<PromptAssembly> assembly_;
  std::size_t next_row_ = 0;                 // index into the schedule
  std::vector<std::size_t> detection_ends_;  // for each detection: one past the index of its last row
  SparseLayers sparse_;
  std::vector<std::int32_t> computed_;  // [prompt] number of layers whose KV was computed
  std::vector<bool> recomputed_;        // [prompt] true: computed as text, or chosen by a detection
  std::int32_t stored_ = 0;
  bool ended_ = false;
  Clock::time_point first_step_{};
  Clock::time_point reported_{};
  Clock::time_point prefilled_at_{};
};

}  // namespace baton
