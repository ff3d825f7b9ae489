// SPDX-License-Identifier: Apache-2.0
// EngineParts: what the threads of an engine share. Each part is a class of its own; this is the record that holds
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/kv/kv_store.h"
#include "engine/local_engine.h"
#include "engine/loop/answer_writer.h"
#include "engine/loop/inbox.h"
#include "engine/loop/kv_lookup.h"
#include "engine/loop/prefill_ahead.h"
#include "engine/loop/relay_probe.h"
#include "engine/loop/speculation.h"
#include "engine/loop/step_plan.h"
#include "engine/model/forward.h"
#include "engine/reuse/method_state.h"

namespace baton {

/// The measured time of an engine per computed token.
class ReuseCosts {
 public:
  /// Milliseconds of one row through all layers, in steps that prefill. 0: not measured yet.
  double row_ms() const { return row_ms_; }

  /// Adds the times of a prefill step. A row counts by the number of layers in its path.
  void on_step(std::span<const RowPath> paths, const StepTimes& times);

 private:
  double row_ms_ = 0.0;
};

/// An engine's statistics. All members are safe from any thread.
class EngineCounters {
 public:
  explicit EngineCounters(std::int64_t weights_bytes) { stats_.weights_bytes = weights_bytes; }
  EngineStats stats() const;
  /// Reports that an order was taken from the inbox, so that early prompts may have rows to run.
  void set_busy_ahead();
  void set_kv(std::int64_t bytes, bool busy_ahead);
  void add_step(std::int64_t rows, std::int32_t rows_ahead, std::int32_t spare_rows);
  void add_measured(double ms);

 private:
  mutable std::mutex mutex_;
  EngineStats stats_;  // guarded by mutex_
};

/// The amount of KV that was copied for a sequence before its first step.
struct CopiedKv {
  RequestId id = 0;
  std::int32_t tokens = 0;
};

/// A plain record of data. The model's buffers and all KV lie in the backend's memory, so the backend is first.
struct EngineParts {
  EngineParts(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options);

  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  const BackendInfo device;
  const EngineInfo info;
  const LocalEngineOptions options;

  // Any thread may use these.
  AnswerMasks masks;
  Inbox inbox;
  RelayMeasuring measuring;
  EngineCounters counters;
  SegmentStore store;   // only peek, hold and stats; the rest is for the engine's thread
  MethodStates states;  // only of() and bytes(); the rest is for the engine's thread

  // The engine's thread alone uses these.
  Inbox::Work work;  // waiting requests, and cancellations
  SequenceList running;
  SequenceList probes;  // probes of turns (relay_probe.h) that have not been started
  Forward forward;
  PrefixCache prefixes;
  SpareRows spare;
  DraftLength drafts;
  PrefillAhead ahead;
  ReuseCosts costs;
  std::vector<CopiedKv> copied;   // KV copied since the last step
  std::unique_ptr<KvStore> disk;  // the disk store, set before the first request; null: none
  bool disk_for_all = false;      // requests use the disk store even if they do not ask for it
};

/// Returns the bytes of the caches of running requests.
std::int64_t kv_bytes(const SequenceList& running);
/// Returns the bytes that early prompts may use.
std::int64_t free_bytes(const EngineParts& parts);
/// Returns the bytes of the cache that a request will have.
std::int64_t bytes_for(const EngineParts& parts, const GenerationRequest& request, const ReuseDecision& decision,
                       std::int32_t positions);
/// Returns the exact KV of the running requests.
std::vector<LivePrefix> live_prefixes(const SequenceList& running);
/// True if KV of the request's prompt may be read from the disk store and written to it.
bool uses_store(const EngineParts& parts, const GenerationRequest& request);
/// True if early prompts have rows to run.
bool has_work_ahead(const EngineParts& parts);

}  // namespace baton
