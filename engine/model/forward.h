// SPDX-License-Identifier: Apache-2.0
// The one idea of the engine: a layer runs over a set of rows. Prefill is all rows of a prompt, a decode step is one
// row of each running sequence, parallel agents are more rows of the same step, a reuse method is which rows run in
// which layers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/model/model.h"
#include "engine/model/rope_table.h"
#include "engine/model/step_rows.h"

namespace baton {

/// Where the time of a step went, milliseconds, on the device. Layers that a backend may replay as one are timed as
/// one, the logits behind them included, and count in equal parts.
struct StepTimes {
  std::vector<double> layer;   // [L], without detection
  double detect = 0.0;         // comparing values and choosing rows
  double other = 0.0;          // final norm, logits
  double arriving = 0.0;       // StepRows::before_layer, and waiting for what it gave
  std::vector<double> beside;  // what Forward::beside was called for since the last step
};

/// Runs rows through the layers of a model. Owns the activations, which grow to the largest step seen and then stay.
/// One thread at a time; the model and backend must outlive it.
class Forward {
 public:
  Forward(Backend& backend, const Model& model);

  /// Writes keys and values of all rows into their caches (committing is the caller's) and returns the logits
  /// [logits_rows, V] f32 in the order asked for, without the first rows.choices.size() of them; valid until the next
  /// call. `rows.path` then says which layers each row really ran through. Throws std::invalid_argument for a schedule
  /// that makes no sense.
  std::span<const float> run(StepRows& rows);

  /// Operations of the backend beside the layers, timed with the next run.
  void beside(const std::function<void()>& work);

  /// Of the last run: the tokens that rows.choices asked for.
  std::span<const ChosenToken> chosen() const { return chosen_; }

  /// For whoever places KV into caches of the same backend.
  RopeTable& angles() { return table_; }

  /// Of the last run.
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
  void arrive(const StepRows& rows, std::int32_t layer);
  bool detects(const StepRows& rows, std::int32_t layer) const;
  void compare_values(const StepRows& rows, std::int32_t layer, ConstTensorView v);
  TensorView detect(StepRows& rows, std::int32_t layer, ConstTensorView q);
  RowSpan span_of(std::int32_t layer);
  RopeAngles row_angles() const;
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
  std::int64_t row_capacity_ = 0;
  std::int64_t logits_capacity_ = 0;
  RopeTable table_;
  RopeAngles step_angles_;  // of all positions up to the step's last
  StepTimes times_;
  std::vector<std::span<double>> parts_;  // of times_, each ended by a mark of the backend
  std::size_t beside_ = 0;                // pieces of work that are timed with the next run
  bool marked_ = false;                   // there are marks of what failed
  bool closed_ = false;                   // the last part has ended
  bool moved_ = false;                    // x_ and next_x_ have changed places

  std::vector<bool> changes_;   // [L + 1] rows enter or leave there
  bool whole_ = true;           // all rows of the step run through all layers
  std::int32_t phase_end_ = 0;  // up to where the layers have the rows of this one
  bool normed_is_in_ = false;   // the layer's input norm was computed with the residual before it

  // The rows of the current layer are the active ones, in the step's order; matrices hold them without gaps.
  std::vector<std::int32_t> active_;    // indices into the step's rows
  std::vector<std::int32_t> sequence_;  // of the active rows
  std::vector<std::int32_t> position_;

  Buffer x_;         // [T, C] residual stream
  Buffer next_x_;    // [T, C] where it moves to when the active rows change
  Buffer normed_;    // [T, C]
  Buffer qkv_;       // [T, (H + 2K) D]
  Buffer q_;         // [T, H D] queries of the rows that a detection leaves
  Buffer attended_;  // [T, H D]
  Buffer delta_;     // [T, C] what attention or the MLP adds
  Buffer gate_up_;   // [T, 2F]
  Buffer hidden_;    // [T, F]
  Buffer cos_;       // [T, D/2] of the active rows
  Buffer sin_;       // [T, D/2]
  Buffer last_;      // [logits rows, C]
  Buffer logits_;    // [logits rows, V]
  Buffer choices_;   // [logits rows] ChosenToken
  std::vector<float> host_logits_;
  std::vector<ChosenToken> chosen_;
  std::vector<float> deviation_;
  std::vector<KvSlab> slabs_;
  std::vector<AttentionSum*> received_;
  std::vector<std::int32_t> stored_;     // sequence_, without rows that keep their K and V
  std::vector<std::int32_t> key_begin_;  // of the active rows in the current layer
  std::vector<std::int32_t> index_;
};

}  // namespace baton
