// SPDX-License-Identifier: Apache-2.0
// Forward: the central idea of the engine is that a layer runs over a set of rows. A prefill has all rows of a prompt,
// a decode step has one row of each running sequence, parallel agents add rows to the same step, and a reuse method
// decides which rows run in which layers. What the layers compute is in engine/model/layers/.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/layers/layer.h"
#include "engine/model/model.h"
#include "engine/model/step.h"

namespace baton {

/// The head of a model: logits of some rows of a step, the tokens chosen from them, and both on the host.
class StepOutputs {
 public:
  StepOutputs(Backend& backend, const Model& model)
      : backend_(backend), model_(model), on_host_(backend.info().host_memory) {}

  /// Makes room for the logits of so many rows.
  void reserve(std::int64_t rows);
  /// Computes the logits of step.logits_rows, which are active, and chooses step.choices.
  void compute(const StepRows& step, const LayerRows& rows, AltUp& altup);
  /// Downloads the choices, and returns the logits of the other rows, valid until the next call.
  std::span<const float> download_results(const StepRows& step);

  std::span<const ChosenToken> chosen() const { return chosen_; }
  const Buffer& logits() const { return logits_; }

 private:
  Backend& backend_;
  const Model& model_;
  const bool on_host_;  // the backend's memory is host memory
  std::int64_t capacity_ = 0;
  Buffer last_;     // [logits rows, N C]
  Buffer logits_;   // [logits rows, V]
  Buffer choices_;  // [logits rows] ChosenToken
  std::vector<std::int32_t> index_;
  std::vector<float> host_logits_;
  std::vector<ChosenToken> chosen_;
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
  void alongside(const std::function<void()>& work) { timer_.alongside(work); }

  /// Runs the products of decode steps of few rows, each shape once, with whatever the activations hold: what a device
  /// measures and prepares for them is there before a request waits. Not for a device that reads host memory.
  void rehearse();

  /// The tokens that the last run chose for rows.choices.
  std::span<const ChosenToken> chosen() const { return outputs_.chosen(); }

  /// The RoPE angles, also for placing KV into caches of the same backend.
  RopeTable& angles() { return rows_.table(); }

  /// The times of the last run.
  const StepTimes& times() const { return timer_.times(); }

 private:
  void reserve(std::int64_t rows, std::int64_t logits_rows);
  void run_phase(StepRows& step, std::int32_t begin, std::int32_t end);
  void run_layer(StepRows& step, std::int32_t layer, std::int32_t phase_end);
  void normalize(std::int32_t layer, std::span<const float> norm);
  void add_and_normalize(std::int32_t layer, std::span<const float> norm);
  void end_layer(StepRows& step, std::int32_t layer, std::int32_t phase_end);
  void finish_part(std::span<const float> post_norm);
  void run_before_layer(const StepRows& step, std::int32_t layer);
  bool can_replay(const StepRows& step, std::int32_t layer) const;
  bool next_norm_is_fused(const StepRows& step, std::int32_t layer, std::int32_t phase_end) const;
  ConstTensorView input(std::int32_t layer) const;
  TensorView normed_input(std::int32_t layer) const;
  Layer& part(LayerKind kind) { return *kinds_[static_cast<std::size_t>(kind)]; }

  // What the model is.
  Backend& backend_;
  const Model& model_;
  const std::vector<LayerEntry> layers_;  // [L]

  // The step.
  std::int64_t row_capacity_ = 0;
  StepTimer timer_;
  LayerRows rows_;
  PartMemory part_memory_;
  Gates gates_;
  AltUp altup_;
  StepStates states_;
  std::array<std::unique_ptr<Layer>, kLayerKinds> kinds_;  // null: the model has no layer of the kind
  StepOutputs outputs_;
  bool normed_is_in_ = false;  // the input norm of the next part was fused with the residual before it
};

}  // namespace baton
