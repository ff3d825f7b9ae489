// SPDX-License-Identifier: Apache-2.0
// A step of the forward pass: its rows and the layers that each of them runs through (StepRows), the rows that run in
// the current layer with their residual stream (LayerRows), and where the time goes (StepTimer). Full prefill and
// decode run every row through all layers; in the schedule of a reuse method, rows may enter late, from a stored hidden
// state, or leave early.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/model.h"
#include "engine/model/rope.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A row runs through layers [enter, leave); its cached K and V of all other layers are unchanged. A row with enter > 0
/// starts from its cache's hidden state, which must be that of layer `enter`, and keeps the cached K and V of that
/// layer too, since they belong to the same hidden state. A placed row that enters at layer 0 also keeps K and V of
/// layer 0, which depend on the token and the model alone.
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
  /// cached before (KvOperations::value_deviation). attention[i]: the fraction of their attention that the readers give
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
  std::vector<const KvCache*> stepwise;  // caches that keep the state behind each row, since rows may be dropped again
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

/// Throws std::invalid_argument if the paths, detections and choices of a step contradict each other or the model.
void check_step(const StepRows& rows, const ModelConfig& config);

/// The times of a step on the device, in milliseconds. Layers that a backend may replay together are timed together,
/// including the logits after them, and get equal fractions.
struct StepTimes {
  std::vector<double> layer;      // [L], without detection
  double detect = 0.0;            // detections: comparing values and choosing rows
  double other = 0.0;             // final norm, logits
  double before_layer = 0.0;      // StepRows::before_layer and its work
  std::vector<double> alongside;  // time of each Forward::alongside call since the last step
};

/// Attributes the time on the device to the parts of a step. Threads: the step's.
class StepTimer {
 public:
  StepTimer(Device& device, std::int32_t layers) : device_(device) {
    times_.layer.resize(static_cast<std::size_t>(layers));
  }

  /// Begins a step. Marks that a failed step left are dropped.
  void begin();
  /// Runs operations outside of a step; finish() of the next step says how long they took.
  void alongside(const std::function<void()>& work);

  /// Attributes the work queued since the last end of a part to layers [first, last), in equal fractions.
  void end_layers(std::int32_t first, std::int32_t last);
  void end_before_layer() { end_part({&times_.before_layer, 1}); }
  void end_detection() { end_part({&times_.detect, 1}); }
  /// Says whether the last part ended with the last work of the step; otherwise that work counts as `other`.
  void set_complete(bool complete) { complete_ = complete; }

  /// Waits for the device and computes times().
  void finish();
  const StepTimes& times() const { return times_; }

 private:
  void end_part(std::span<double> part);

  Device& device_;
  StepTimes times_;
  std::vector<std::span<double>> parts_;  // parts of times_, each ended by a mark of the device
  std::size_t alongside_ = 0;             // pending calls of alongside()
  bool marked_ = false;                   // marks of a failed step are left
  bool complete_ = false;
};

/// The runs of a step's rows through the recurrent layers, and the states between them. All rows run through all
/// layers, and the rows of a sequence follow its committed ones. Threads: the step's.
class StepStates {
 public:
  /// Finds the runs and takes memory for the states that the step leaves: behind its last row of each sequence, at the
  /// positions that are wanted, and behind each row of StepRows::stepwise. Does nothing for a model without recurrent
  /// layers. Throws std::invalid_argument for other rows, BackendError.
  void prepare(const StepRows& step);
  /// Returns the rows with the part of the states that begins at `offset` floats.
  StateRows at(std::int64_t offset) const { return {rows_, runs_, offset}; }

 private:
  void add_runs(const StepRows& step, KvCache& cache, std::span<const std::int32_t> rows);

  std::vector<std::int32_t> rows_;
  std::vector<StateRun> runs_;
  std::vector<std::shared_ptr<const Buffer>> begins_;  // keep the memory of the states that runs begin with
};

/// The angles of the rows of a layer, of every RoPE of the model.
class RowAngles {
 public:
  RowAngles(Backend& backend, const LayerRopes& ropes) : backend_(backend), table_(backend, ropes) {}

  RopeTable& table() { return table_; }
  void allocate(std::int64_t rows);
  /// Gathers the angles of the positions.
  void gather(std::span<const std::int32_t> position);
  /// Returns those of the layer's RoPE.
  RopeAngles of(std::int32_t layer, std::int64_t rows) const;

 private:
  Backend& backend_;
  RopeTable table_;
  std::vector<Buffer> cos_;  // of each RoPE of the model, [T, D/2]
  std::vector<Buffer> sin_;  // [T, D/2]
};

/// The memory of the residual streams of a step's rows: N streams a row, of most models one. Threads: the step's.
class ResidualStreams {
 public:
  ResidualStreams(Backend& backend, const ModelConfig& config)
      : backend_(backend), width_(config.width), all_width_(config.stream_width()) {}

  /// Makes room for so many rows.
  void allocate(std::int64_t rows);
  /// Puts the buffers back to where they were, since a replayed step needs all of them at the same addresses.
  void begin();

  /// All streams, [rows, N C].
  TensorView all(std::int64_t rows) const { return all_.view(DType::f32, rows, all_width_); }
  /// What is predicted for them behind the layer, [rows, N C], if there are several.
  TensorView predictions(std::int64_t rows) const { return predictions_.view(DType::f32, rows, all_width_); }
  /// The stream that the parts of a layer read and write, [rows, C].
  TensorView of_parts(std::int64_t rows) const { return (several() ? active_ : all_).view(DType::f32, rows, width_); }

  /// Room for the streams of other rows, which are those of the step after swap().
  TensorView next(std::int64_t rows) const { return next_.view(DType::f32, rows, all_width_); }
  void swap();
  /// Keeps the rows of these indices, of `rows`, within a layer.
  void keep(std::int64_t rows, std::span<const std::int32_t> kept);

 private:
  bool several() const { return all_width_ > width_; }
  void keep_of(const TensorView& memory, std::span<const std::int32_t> kept);

  Backend& backend_;
  std::int64_t width_;      // C
  std::int64_t all_width_;  // N C
  Buffer all_;              // [T, N C]
  Buffer next_;             // [T, N C]
  Buffer active_;           // [T, C], if there are several
  Buffer predictions_;      // [T, N C], if there are several
  bool swapped_ = false;    // all_ and next_ have changed places
};

/// The rows of the current layer, the active ones, in the step's order, and their residual stream. Matrices hold the
/// active rows without gaps. Threads: the step's.
class LayerRows {
 public:
  LayerRows(Backend& backend, const Model& model)
      : backend_(backend), model_(model), angles_(backend, model.ropes), streams_(backend, model.config) {}

  /// Makes room for so many rows.
  void allocate(std::int64_t rows);
  /// Begins a step: finds the layers in which rows may enter or leave, and reserves the angles of all positions.
  void begin(const StepRows& step);
  /// Returns the end of the layers from `begin` on that have the same rows.
  std::int32_t phase_end(std::int32_t begin) const;
  /// True if all rows of the step run through all layers.
  bool whole() const { return whole_; }

  /// Makes the rows of `layer` the active rows and gathers their residual streams.
  void activate(const StepRows& step, std::int32_t layer);
  /// Drops all active rows but those of the given indices, ascending.
  void keep(const StepRows& step, std::span<const std::int32_t> kept);
  /// Stores hidden states at the input of the layer in the caches that keep those of this layer.
  void keep_hidden(const StepRows& step, std::int32_t layer);

  std::int64_t count() const { return static_cast<std::int64_t>(active_.size()); }
  const std::vector<std::int32_t>& active() const { return active_; }  // indices into the step's rows
  const std::vector<std::int32_t>& sequence() const { return sequence_; }
  const std::vector<std::int32_t>& position() const { return position_; }
  /// Returns the active rows with the keys that each sees in the layer; valid until the next call.
  RowSpan span_of(std::int32_t layer);
  RopeAngles angles(std::int32_t layer) const { return angles_.of(layer, count()); }
  RopeTable& table() { return angles_.table(); }

  /// What passes from layer to layer, [T, N C].
  TensorView streams() const { return streams_.all(count()); }
  /// See ResidualStreams.
  TensorView predictions() const { return streams_.predictions(count()); }
  /// The residual stream that the parts of the layer read and write, [T, C].
  TensorView residual() const { return streams_.of_parts(count()); }
  /// The input of a part of a layer, [rows, C] of the type.
  TensorView normed(DType type, std::int64_t rows) const { return normed_.view(type, rows, model_.config.width); }
  const Buffer& normed() const { return normed_; }
  /// The output of a part of a layer, [T, C], which is added to the residual stream.
  TensorView delta() const { return delta_.view(DType::f32, count(), model_.config.width); }
  const Buffer& delta_buffer() const { return delta_; }

 private:
  void set_active(const StepRows& step);

  Backend& backend_;
  const Model& model_;
  RowAngles angles_;
  ResidualStreams streams_;
  Buffer normed_;  // [T, C]; also [T, N C] while rows change
  Buffer delta_;   // [T, C]
  bool whole_ = true;
  std::vector<bool> changes_;  // [L + 1] true where rows enter or leave
  std::vector<std::int32_t> active_;
  std::vector<std::int32_t> sequence_;
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> key_begin_;
  std::vector<TokenId> tokens_;  // of the active rows of layer 0
};

}  // namespace baton
