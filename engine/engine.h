// SPDX-License-Identifier: Apache-2.0
// InferenceEngine: the entry of the engine layer for the workflow layer. It is what any engine can do, in this process
// or elsewhere: a caller submits requests (engine/request.h), follows their callbacks, and builds prompts with the
// model's text side. engine/local_engine.h adds what only an engine in this process can do. See docs/architecture.md.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/kv/segment_handle.h"
#include "engine/request.h"
#include "engine/reuse/between_models.h"
#include "engine/text/templates.h"

namespace baton {

/// Facts about an engine and its model that do not change while it is open.
struct EngineInfo {
  std::string device;              // "cpu", "cuda:0"
  std::string device_description;  // "Intel Xeon ..., AVX-512, 2 threads"
  int threads = 1;                 // compute threads on the host
  std::int32_t context = 0;        // maximum tokens of a prompt and its answer together
  KvFormat kv;                     // engines with equal formats can read each other's KV
  std::string device_fallback;     // why `auto` took the CPU although a GPU is there, or empty
};

/// Statistics of an engine at one moment.
struct EngineStats {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;       // current size of all KV
  std::int64_t kv_peak_bytes = 0;  // maximum of kv_bytes since the engine was opened
  std::int64_t steps = 0;          // engine steps that were run
  std::int64_t rows = 0;           // token rows of all steps
  std::int64_t rows_ahead = 0;     // the rows among them that belong to early prompts
  bool busy_ahead = false;         // early prompts have rows left to run, and there is memory for them
  std::int32_t spare_rows = 0;     // rows that a decode step of one sequence can add within `slowdown`; 0: not measured
  /// Turns that are being measured for a place (engine/reuse/auto/levels.h) about which too little is known to decide
  /// by it.
  std::int32_t measuring = 0;
  SegmentStoreStats segments;
  std::int64_t method_bytes = 0;  // that methods keep from prompt to prompt (engine/reuse/method_state.h)
};

/// All members are safe from any thread.
class InferenceEngine {
 public:
  virtual ~InferenceEngine() = default;

  /// Reads what requests with a constraint need of the model's vocabulary, once, so that `submit` does not have to:
  /// takes about a tenth of a second. Throws ModelError for a tokenizer whose tokens take too many steps, and
  /// Interrupted soon after a stop was requested; a later call begins anew then. An engine that needs nothing returns
  /// at once.
  virtual void read_vocabulary(const std::stop_token&) {}

  /// Accepts the request and returns its id. Throws EngineError when the prompt does not fit the context (the message
  /// holds both numbers), when there is not enough memory, or when a parameter is out of range. The engine reduces
  /// max_tokens to the room that the context leaves. A refused request, too, has ended its early prompt.
  virtual RequestId submit(GenerationRequest request) = 0;

  /// Ends a request at the next step with FinishReason::cancelled and the tokens decoded so far. Unknown ids are
  /// ignored.
  virtual void cancel(RequestId id) = 0;

  /// Begins to prefill a prompt ahead, as far as rows and memory can be spared, and returns its id for
  /// GenerationRequest::early. That request takes over the KV of the longest common prefix. Prompts are prefilled in
  /// the order of these calls. An engine that prefills nothing ahead returns 0.
  virtual EarlyId prepare(EarlyPrompt prompt) = 0;
  /// Replaces the parts of an early prompt, when more of the prompt is known or the prompt has changed. Unknown ids are
  /// ignored.
  virtual void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) = 0;
  /// Drops an early prompt whose request will not be submitted. Unknown ids are ignored.
  virtual void forget(EarlyId id) = 0;

  /// Returns the KV of a handle of this engine in host memory, for use as PromptPart::imported_kv by engines with an
  /// equal EngineInfo::kv. The memory stays valid for as long as the result lives. Returns null when the segment was
  /// evicted, when it is on a device and was not made with PromptPart::export_kv, when host memory had no room for the
  /// copy, or when this engine hands no KV over.
  virtual std::shared_ptr<const Segment> exported_kv(const SegmentHandle& handle) const = 0;

  /// The model's identity, tokenizer and chat template. The reference is valid for as long as the engine.
  virtual const ModelText& text() const = 0;
  virtual const EngineInfo& info() const = 0;
  virtual EngineStats stats() const = 0;
};

}  // namespace baton
