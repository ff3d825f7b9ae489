// SPDX-License-Identifier: Apache-2.0
// LocalEngine: an engine in this process. It adds to InferenceEngine the members that need direct access to the model,
// its KV and what methods keep: measuring, learning, and the settings that result from them. The implementation is
// engine/loop/step_engine.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/segment.h"
#include "engine/model/model.h"
#include "engine/reuse/decision.h"
#include "engine/reuse/method_state.h"

namespace baton {

/// All members are safe from any thread.
class LocalEngine : public InferenceEngine {
 public:
  virtual const Model& model() const = 0;

  /// What a method keeps in this engine, or null if it keeps nothing. Valid for as long as the engine.
  virtual MethodState* method_state(const Method& method) = 0;

  /// Returns the segment of a handle of this engine, or null when the segment was evicted. The call is for inspection
  /// and does not count as a planned reader. The segment may be in host memory (Segment::on_host).
  virtual std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const = 0;

  /// What has been measured of the model, by which reuse methods decide.
  virtual Calibration calibration() const = 0;
  /// Replaces all of it. What the engine measures between calibration() and this call is lost.
  virtual void set_calibration(Calibration calibration) = 0;
  /// Returns Calibration::history if the engine has changed it since the last call or set_calibration(), else nothing.
  virtual std::optional<RelayHistory> changed_history() = 0;

  /// Returns the KV of a context of this engine, from position 0 up to the first piece that was evicted: for each layer
  /// the keys before RoPE [n, K * D] and the values [n, K * D], in the type of the engine's KV. Must not be called from
  /// a callback. Throws BackendError; returns nothing when the engine ends meanwhile.
  virtual std::vector<std::byte> context_bytes(const ContextHandle& context) = 0;
  /// Makes a context from the KV of its n tokens. The first `exact` of it are exact, the others `hops` hand-overs away.
  /// Must not be called from a callback. Returns null when the budget has no room or the engine ends meanwhile. Throws
  /// BackendError, and std::invalid_argument for a size that is not that of the tokens.
  virtual ContextHandle make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops,
                                     std::vector<std::byte> bytes) = 0;

  /// True if the engine works in the host's memory and its model has no recurrent layers: it may have a store then.
  virtual bool may_have_store() const = 0;
  /// From now on KV is also kept in a store and taken from it: of requests that ask for it (ReuseOptions::store), or of
  /// all. Call this once, before the first request, of an engine that may have a store.
  virtual void set_store(std::unique_ptr<KvStore> store, bool for_all) = 0;
  /// Waits until the store has written what it was given, for a few seconds at most.
  virtual void finish_store() = 0;

  /// Downloads the segments that no request reads to the host tier, if the engine has one, and returns when all copies
  /// are complete. Their device memory is then free, and the first later reader waits for the upload. This function
  /// must not be called from a callback.
  virtual void park() = 0;
};

/// Sets what `change` changes in a copy of the engine's calibration.
template <typename Change>
void update_calibration(LocalEngine& engine, const Change& change) {
  Calibration calibration = engine.calibration();
  change(calibration);
  engine.set_calibration(std::move(calibration));
}

/// Defaults of LocalEngineOptions::slowdown. On the CPU agents that decode keep 60 % of their speed, and a prompt that
/// arrives meanwhile gets the other 40 %. A GPU computes hundreds of rows in a decode step at little cost.
constexpr double kSlowdownCpu = 0.67;
constexpr double kSlowdownGpu = 0.10;
/// Default of max_prefill_rows on a GPU: matrix products are most efficient over many rows, and a step without decoding
/// sequences delays no sequence's next token.
constexpr std::int32_t kPrefillRowsGpu = 4096;

/// Default of max_draft: with the newest token a tile of the CPU's products of f32 weights.
constexpr std::int32_t kMaxDraftCpu = 11;

struct LocalEngineOptions {
  std::string device = "auto";
  int threads = 0;  // CPU threads; 0: one per core that this process may use
  ModelOptions model;
  std::int64_t kv_budget_bytes = 0;       // 0: half of the free memory
  std::int64_t segment_budget_bytes = 0;  // of segments kept for later prompts; 0: a third of kv_budget_bytes
  /// Budget of the host tier of a device's segments; 0: a quarter of the machine's available memory; below 0: no tier.
  std::int64_t host_segment_budget_bytes = 0;
  std::int64_t method_budget_bytes =
      0;                              // of a method's state, in segment_budget_bytes; 0: half of segment_budget_bytes
  std::int32_t max_step_rows = 512;   // maximum rows of one step in which sequences decode
  std::int32_t max_prefill_rows = 0;  // of other steps; 0: max_step_rows or, on a GPU, kPrefillRowsGpu
  std::int32_t max_sequences = 64;    // sequences that run concurrently; further requests wait
  /// The fraction by which rows of prompts, submitted ones and those computed ahead, may lengthen decode steps on
  /// average; 0: kSlowdownCpu or kSlowdownGpu. Prompts that arrived before an agent began to decode are not bound by
  /// its steps.
  double slowdown = 0.0;
  /// Maximum tokens of a draft (engine/loop/speculation.h); 0: none, and token_by_token; below 0: kMaxDraftCpu or, on a
  /// GPU, none.
  std::int32_t max_draft = -1;
  bool draft_always = false;    // whole drafts run, whatever was measured
  bool token_by_token = false;  // forced answers, too, run one token a step
  /// Method verified: a prompt with fewer rows left is computed before its first token.
  std::int32_t min_tentative_rows = 64;
  int progress_ms = 250;  // minimum time between two reports of on_prefill_progress
};

/// Opens a model folder on a device and starts the engine's thread. Throws ModelError when the model cannot be used and
/// BackendError when the device or its memory cannot.
std::shared_ptr<LocalEngine> open_engine(const std::filesystem::path& model, const LocalEngineOptions& options);

}  // namespace baton
