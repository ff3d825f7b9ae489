// SPDX-License-Identifier: Apache-2.0
// The rows of one step and the layers that each row runs through. Full prefill and decode run every row through all
// layers; in the schedule of a reuse method, rows may enter late, from a stored hidden state, or leave early.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/host_operations.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/expert_choice.h"
#include "engine/model/model.h"
#include "engine/model/rope.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A row runs through layers [enter, leave); its cached K and V of all other layers are unchanged. A row with enter > 0
/// starts from its cache's hidden state, which must be that of layer `enter`, and keeps the cached K and V of that
/// layer too, since they belong to the same hidden state. A placed row that enters at layer 0 also keeps K and V of
/// layer 0, which depend on the token alone.
struct RowPath {
  std::int32_t enter = 0;
  std::int32_t leave = 0;
  std::int32_t detection = -1;  // index into StepRows::detections
  bool placed = false;          // the cache holds K and V of this token at this position
  bool anew = false;            // another model made K and V, so those of layer `enter` are computed too

  bool keeps(std::int32_t layer) const { return layer == enter && !anew && (enter > 0 || placed); }
  /// Number of layers whose K and V are computed.
  std::int32_t computed() const { return leave - enter - (keeps(enter) ? 1 : 0); }
};

/// At `layer`, K and V of the detection's rows are computed and stored; then only the chosen rows run on, up to
/// `leave`.
struct Detection {
  /// deviation[i]: the deviation of the i-th row of this detection, in the step's order, from the values that were
  /// cached before (Operations::value_deviation). attention[i]: the fraction of their attention that the readers give
  /// to that row's token in this layer, the mean over readers and heads; empty without readers. Returns one flag for
  /// each row. Called on the thread of the step.
  using Choose = std::function<std::vector<bool>(std::span<const float> deviation, std::span<const float> attention)>;
  std::int32_t layer = 0;
  std::int32_t leave = 0;
  Choose choose;
  ValueMeasure measure = ValueMeasure::cosine;
  std::int32_t readers_begin = 0;  // the readers: rows of the step at these positions of the same cache
  std::int32_t readers_end = 0;
};

/// Row i is `token[i]` at `position[i]` of the cache `sequence[i]`. The rows may be in any order. Each position that a
/// row attends to must be committed, placed, or a row of the same step.
struct StepRows {
  std::vector<KvCache*> caches;
  std::vector<const KvCache*> unsummed;  // caches whose KvCache::received() the rows of this step leave as it is
  std::vector<std::int32_t> sequence;    // [T] index into caches
  std::vector<std::int32_t> position;    // [T]
  std::vector<TokenId> token;            // [T]
  std::vector<RowPath> path;             // [T], or empty: all rows through all layers
  std::vector<Detection> detections;
  std::vector<std::int32_t> logits_rows;  // rows whose logits are needed; they run through the last layer
  std::vector<TokenChoice> choices;       // choices for the first of logits_rows, made by the backend
  /// Called before each layer on the thread of the step, to place the KV and hidden states of this layer that are still
  /// being uploaded. Null: the caches are complete.
  std::function<void(std::int32_t layer)> before_layer;

  std::int64_t size() const { return static_cast<std::int64_t>(token.size()); }
  void clear();
  /// Returns the index of the cache, which is added when it is new.
  std::int32_t add_cache(KvCache* cache);
  void add_row(std::int32_t cache, std::int32_t at, TokenId id);
};

// Forward: the central idea of the engine is that a layer runs over a set of rows. A prefill has all rows of a prompt,
// a decode step has one row of each running sequence, parallel agents add rows to the same step, and a reuse method
// decides which rows run in which layers.

/// The times of a step on the device, in milliseconds. Layers that a backend may replay together are timed together,
/// including the logits after them, and get equal fractions.
struct StepTimes {
  std::vector<double> layer;      // [L], without detection
  double detect = 0.0;            // detections: comparing values and choosing rows
  double other = 0.0;             // final norm, logits
  double arriving = 0.0;          // StepRows::before_layer and its work
  std::vector<double> alongside;  // time of each Forward::alongside call since the last step
};

/// Runs rows through the layers of a model. Owns the activations, which grow to the largest step seen and are then
/// reused. Not thread-safe; the model and the backend must outlive the object.
class Forward {
 public:
  Forward(Backend& backend, const Model& model);

  /// Writes the keys and values of all rows into their caches (the caller commits them) and returns the logits of
  /// rows.logits_rows, [n, V] f32 in that order, without those of the first rows.choices.size() rows; valid until the
  /// next call. Sets `rows.path` to the layers that each row actually ran through. Throws std::invalid_argument for an
  /// inconsistent schedule.
  std::span<const float> run(StepRows& rows);

  /// Runs backend operations outside of a step; the next run measures their time (StepTimes::alongside).
  void alongside(const std::function<void()>& work);

  /// Runs the products of decode steps of few rows, each shape once, with whatever the activations hold: what a device
  /// measures and prepares for them is there before a request waits. Not for a device that reads host memory.
  void rehearse();

  /// The tokens that the last run chose for rows.choices.
  std::span<const ChosenToken> chosen() const { return chosen_; }

  /// The RoPE angles, also for placing KV into caches of the same backend.
  RopeTable& angles() { return table_; }

  /// The times of the last run.
  const StepTimes& times() const { return times_; }

 private:
  void check(const StepRows& rows) const;
  void reserve(std::int64_t rows, std::int64_t logits_rows);
  void prepare(const StepRows& rows);
  void find_changes(const StepRows& rows);
  void activate(StepRows& rows, std::int32_t layer);
  void set_active(const StepRows& rows);
  void keep_hidden(const StepRows& rows, std::int32_t layer);
  void run_phase(StepRows& rows, std::int32_t begin, std::int32_t end);
  void run_layer(StepRows& rows, std::int32_t layer);
  void run_mlp(TensorView delta, ConstTensorView normed, const LayerWeights& w);
  void run_mixture(TensorView delta, ConstTensorView normed, const LayerWeights& w);
  DType gate_type(const Matrix& gate_up, std::span<const float> bias) const;
  TensorView gated(TensorView gate_up, const Matrix& down);
  void arrive(const StepRows& rows, std::int32_t layer);
  bool detects(const StepRows& rows, std::int32_t layer) const;
  void compare_values(const StepRows& rows, std::int32_t layer, ConstTensorView v);
  std::vector<float> attention_of_readers(const StepRows& rows, const Detection& detection,
                                          std::span<const std::size_t> compared, ConstTensorView q);
  TensorView detect(StepRows& rows, std::int32_t layer, ConstTensorView q);
  RowSpan span_of(std::int32_t layer);
  RopeAngles row_angles(std::int32_t layer) const;
  void compute_logits(const StepRows& rows);
  std::span<const float> bring_results(const StepRows& rows);
  void move_on();
  void end_part(std::span<double> part);
  void take_times();
  bool leads_on(const StepRows& rows, std::int32_t layer) const;
  std::int64_t count() const { return static_cast<std::int64_t>(active_.size()); }
  TensorView residual() const { return x_.view(DType::f32, count(), model_.config.width); }

  Backend& backend_;
  const Model& model_;
  bool on_host_;  // operations read host memory as their own
  std::int64_t row_capacity_ = 0;
  std::int64_t logits_capacity_ = 0;
  RopeTable table_;
  StepTimes times_;
  std::vector<std::span<double>> parts_;  // parts of times_, each ended by a mark of the backend
  std::size_t alongside_ = 0;             // pending calls of alongside()
  bool marked_ = false;                   // marks of a failed run are left
  bool closed_ = false;                   // the last part has ended
  bool moved_ = false;                    // x_ and next_x_ have changed places

  std::vector<bool> changes_;   // [L + 1] true where rows enter or leave
  bool whole_ = true;           // all rows of the step run through all layers
  std::int32_t phase_end_ = 0;  // end of the layers with the same rows as this one
  bool normed_is_in_ = false;   // the layer's input norm was fused with the residual before it

  // The rows of the current layer are the active ones, in the step's order; matrices hold them without gaps.
  std::vector<std::int32_t> active_;    // indices into the step's rows
  std::vector<std::int32_t> sequence_;  // of the active rows
  std::vector<std::int32_t> position_;

  Buffer x_;                   // [T, C] residual stream
  Buffer next_x_;              // [T, C] residual stream after a change of the active rows
  Buffer normed_;              // [T, C]
  Buffer qkv_;                 // [T, (H + 2K) D]
  Buffer q_;                   // [T, H D] queries of a detection's readers, then of the rows that it leaves
  Buffer attended_;            // [T, H D]
  Buffer delta_;               // [T, C] output of attention or of the MLP
  std::int64_t mlp_rows_ = 0;  // that run through an MLP at once: all, or on the CPU, without a mixture, kMlpRows
  Buffer gate_up_;             // [mlp_rows_, 2F]
  Buffer hidden_;              // [T, F]; not on the CPU
  Buffer router_;              // [T, E] logits of a mixture's router
  Buffer expert_in_;           // [T, C] rows of one expert
  Buffer expert_out_;          // [T, C]
  std::vector<Buffer> cos_;    // of each RoPE of the model, [T, D/2] of the active rows
  std::vector<Buffer> sin_;    // [T, D/2]
  Buffer last_;                // [logits rows, C]
  Buffer logits_;              // [logits rows, V]
  Buffer choices_;             // [logits rows] ChosenToken
  std::vector<float> host_logits_;
  std::vector<ChosenToken> chosen_;
  std::vector<float> deviation_;
  std::vector<float> router_logits_;  // [T, E]
  ExpertChoice experts_;
  std::vector<KvSlab> slabs_;
  std::vector<AttentionSum*> received_;
  std::vector<std::int32_t> stored_;     // sequence_, without rows that keep their K and V
  std::vector<std::int32_t> key_begin_;  // of the active rows in the current layer
  std::vector<std::int32_t> index_;
};

}  // namespace baton
