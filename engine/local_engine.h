// SPDX-License-Identifier: Apache-2.0
// LocalEngine: an engine in this process. It adds to InferenceEngine what needs the model, its KV and its anchors at
// hand: measuring, learning, and the settings that come of them. The implementation is engine/steps/step_engine.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/kv/segment.h"
#include "engine/model/model.h"
#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/corrections/linear_correction.h"

namespace baton {

/// All members are safe from any thread.
class LocalEngine : public InferenceEngine {
 public:
  virtual const Model& model() const = 0;

  /// The anchor pools of this engine's model (method anchors).
  virtual AnchorStore& anchors() = 0;

  /// The segment of a handle of this engine, or null when it was evicted. This is for inspection and does not count as
  /// a planned reader. The segment may be in host memory (Segment::on_host).
  virtual std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const = 0;

  /// The layers that method rectify recomputes for this model; not valid until the model has been profiled.
  virtual LayerRange layer_range() const = 0;
  virtual void set_layer_range(LayerRange range) = 0;

  /// Sets what was learned about texts in the places of this model's prompts (method rectify); null: nothing.
  virtual void set_corrections(std::shared_ptr<const Corrections> corrections) = 0;

  /// Moves the segments that no request reads to host memory, if the engine has such a tier, and returns when they are
  /// there. The device's memory is free for others then, and the first reader waits for the upload. Not from a
  /// callback.
  virtual void park() = 0;
};

/// By default, rows computed ahead may lengthen decode steps by these fractions of a step.
constexpr double kSlowdownCpu = 0.25;
constexpr double kSlowdownGpu = 0.10;
/// A GPU multiplies fastest over many rows, and a step without decoding sequences delays nobody's next token.
constexpr std::int32_t kPrefillRowsGpu = 4096;

struct LocalEngineOptions {
  std::string device = "auto";
  int threads = 0;  // CPU threads; 0: one per core
  ModelOptions model;
  std::int64_t kv_budget_bytes = 0;       // 0: half of the free memory
  std::int64_t segment_budget_bytes = 0;  // for segments kept for later prompts; 0: a third of kv_budget_bytes
  /// For segments that a device moves to host memory; 0: a quarter of the machine's available memory; below 0: none.
  std::int64_t host_segment_budget_bytes = 0;
  std::int64_t anchor_budget_bytes = 0;  // for anchors, within segment_budget_bytes; 0: half of it
  std::int32_t max_step_rows = 512;      // rows of one step: prompts are split into chunks of at most this
  std::int32_t max_prefill_rows = 0;     // the same while no sequence decodes; 0: max_step_rows, or kPrefillRowsGpu
  std::int32_t max_sequences = 64;       // running concurrently; further requests wait
  /// The fraction by which rows computed ahead may lengthen decode steps on average; 0: kSlowdownCpu or kSlowdownGpu.
  double slowdown = 0.0;
};

/// Opens a model folder on a device and starts the engine's thread. Throws ModelError, BackendError.
std::shared_ptr<LocalEngine> open_engine(const std::filesystem::path& model, const LocalEngineOptions& options);

}  // namespace baton
