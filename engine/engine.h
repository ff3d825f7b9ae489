// SPDX-License-Identifier: Apache-2.0
// Entry of the engine layer: submit a request, follow its events, collect its result. All running sequences share
// every step; see engine/step.h and docs/architecture.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <baton/states.h>

#include "engine/backend/backend.h"
#include "engine/kv/segment_store.h"
#include "engine/model/model.h"
#include "engine/model/sampler.h"
#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/corrections/linear_correction.h"
#include "engine/reuse/options.h"

namespace baton {

class EngineError : public std::runtime_error {
 public:
  enum class Kind { too_long, memory, invalid };
  EngineError(Kind what_kind, const std::string& message) : std::runtime_error(message), kind(what_kind) {}
  Kind kind;
};

/// A prompt is a list of parts, each already token ids: fixed text, or the value of a placeholder.
struct PromptPart {
  std::string slot;  // placeholder name; empty for fixed text
  std::vector<TokenId> tokens;
  SegmentHandle segment;     // KV of exactly these tokens, from the same engine; null: there is none
  std::int64_t readers = 0;  // above 0: the part becomes a segment itself, for so many later readers
  bool elsewhere = false;    // some of which are prompts of other models: see InferenceEngine::portable
  /// Where there is no `segment`: KV of exactly these tokens from an engine of another model, whose shapes are the same
  /// (kv_difference). null: there is none.
  std::shared_ptr<const Segment> portable;
  std::string without;  // why there is neither, for the report
};

/// What the anchors said of a placeholder.
struct AnchorUse {
  std::int32_t anchors = 0;       // that it was corrected by, or would have been
  float ambiguity = 0.0f;         // entropy of their weights over log(anchors)
  float distance = 0.0f;          // of the nearest
  float predicted_error = -1.0f;  // relative error of K and V; below 0: not known
};

/// What became of a part of the prompt.
struct PartUse {
  std::string method = "full";  // how its KV came into being: full, prefix, or the request's method
  bool from_segment = false;
  bool corrected = false;          // by what was learned for this place (InferenceEngine::set_corrections)
  std::string reason;              // why not as asked for
  std::int64_t reused_tokens = 0;  // neither computed in full nor chosen by the method to be recomputed
  std::int64_t kv_reused = 0;      // entries (tokens x layers)
  std::int64_t kv_reusable = 0;    // the same if the method had chosen no token to be recomputed: what its layers allow
  std::int64_t ahead_tokens = 0;   // computed, but before all of the prompt was known
  int hops = 0;                    // of the segment
  std::optional<AnchorUse> anchors;
};

/// Parts of the time to first token, milliseconds.
struct PrefillTimes {
  double match = 0.0;        // finding prefixes and segments, making the schedule
  double copy = 0.0;         // copying and rotating them, and waiting for those that come from host memory
  double full_layers = 0.0;  // layers up to the sparse ones; without those: all layers
  double detect = 0.0;
  double sparse_layers = 0.0;  // layers in which only chosen tokens and text run
  double tail = 0.0;           // layers behind those, text alone, and the logits
};

struct GenerationResult {
  FinishReason reason = FinishReason::eos;
  std::vector<TokenId> tokens;  // generated, without the EOS; with the tokens of a stop string cut off
  std::string text;             // decoded, cut before the stop string
  std::string error;            // when reason is error
  std::int64_t prompt_tokens = 0;
  std::int64_t kv_entries = 0;          // prompt tokens x layers
  std::int64_t kv_computed = 0;         // of those, computed rather than reused
  std::int64_t kv_ahead = 0;            // of the computed ones: before all of the prompt was known, in steps of others
  double queue_ms = 0.0;                // submit to the first step
  double prefill_ms = 0.0;              // first step to the logits of the last prompt token
  double ttft_ms = 0.0;                 // submit to the first token
  double decode_ms = 0.0;               // first token to the last
  PrefillTimes prefill;                 // its parts
  int hops = 0;                         // 0: computed exactly; n: the context held segments of n - 1 hops
  std::vector<PartUse> uses;            // one for each part of the prompt
  SegmentHandle output;                 // the answer as a segment, where one was asked for and made
  std::vector<SegmentHandle> segments;  // those of the prompt's parts; null: none
};

using RequestId = std::uint64_t;
using EarlyId = std::uint64_t;

/// A part of a prompt of which not all is known yet.
struct EarlyPart {
  std::vector<TokenId> tokens;
  RequestId follows = 0;  // above 0: in place of `tokens` what this request decodes, as it comes
};

/// A prompt whose request is still to come. Its KV is computed ahead, exactly, in rows of steps that others need.
struct EarlyPrompt {
  std::vector<EarlyPart> parts;  // from the first token on, as far as they are known
  bool complete = false;         // the prompt ends with the last of them
  std::int32_t longest = 0;      // tokens that the prompt and its answer may come to
  ReuseOptions reuse;            // as the request will have it; without `record`
};

/// Callbacks run on the engine's thread, in order, one at a time; they must return soon and may call submit and cancel.
struct GenerationCallbacks {
  std::function<void(const GenerationResult& so_far)> on_prefilled;  // with the reuse numbers
  std::function<void(TokenId id, const std::string& text)> on_token;
  std::function<void(std::span<const float> logits)> on_logits;  // [V], before each token is chosen
  std::function<void(GenerationResult)> on_finished;             // exactly once for each accepted request
};

struct GenerationRequest {
  std::vector<PromptPart> prompt;
  SamplingParams sampling;
  std::int32_t max_tokens = 256;
  std::vector<std::string> stop;  // output ends before the first of these; none may be empty
  ReuseOptions reuse;
  EarlyId early = 0;                // what was computed ahead for this request, which ends with submit; 0: nothing
  std::int64_t output_readers = 0;  // with reuse.record: how many later prompts will hold the answer
  bool output_elsewhere = false;    // some of which are of other models
  std::string output_slot;          // and the name of its placeholder there, for anchors
  std::string reader;               // whose prompt this is: "inspector", "inspector#2"
  std::vector<TokenId> forced;  // teacher forcing: the answer is these tokens, whatever the logits say; then it ends
  GenerationCallbacks callbacks;
};

struct EngineStats {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;       // now
  std::int64_t kv_peak_bytes = 0;  // since the last reset
  std::int64_t steps = 0;
  std::int64_t rows = 0;        // of all steps
  std::int64_t rows_ahead = 0;  // of those, of early prompts
  bool busy_ahead = false;      // there is more of early prompts to run, and room for it
  std::int32_t spare_rows = 0;  // that ride along with one decoding sequence within the bound; 0: not measured
  SegmentStoreStats segments;
  AnchorStoreStats anchors;
};

/// What the workflow layer sees. Implementations: LocalEngine here; a client of a remote server can stand beside it.
/// All members are safe from any thread.
class InferenceEngine {
 public:
  virtual ~InferenceEngine() = default;

  /// Takes the request or throws EngineError: the prompt does not fit the context (both numbers are in the message),
  /// memory, or parameters out of range. max_tokens is cut to what the context leaves.
  virtual RequestId submit(GenerationRequest request) = 0;

  /// The request ends at the next step with FinishReason::cancelled and what it has; unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;

  /// Begins to compute a prompt ahead, as far as rows and memory can be spared; a request takes it over with
  /// GenerationRequest::early, as far as the tokens are the same. Those prepared first are served first.
  virtual EarlyId prepare(EarlyPrompt prompt) = 0;
  /// More of the prompt is known, or something else. Unknown ids are ignored.
  virtual void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) = 0;
  /// Its request will not come. Unknown ids are ignored.
  virtual void forget(EarlyId id) = 0;

  virtual const Model& model() const = 0;
  virtual BackendInfo device() const = 0;
  virtual EngineStats stats() const = 0;

  /// The anchor pools of this engine's model (method anchors).
  virtual AnchorStore& anchors() = 0;

  /// What a handle of this engine stands for, or null when it was taken back; for looking at, not a planned reader. It
  /// may be in host memory (Segment::on_host).
  virtual std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const = 0;

  /// The KV of a handle of this engine in memory of the host, where engines of other models may read it
  /// (PromptPart::portable); this engine's memory stays for as long as that is kept. Null: it was taken back; or it is
  /// on a device, and was not made with `elsewhere` or found no room in host memory.
  virtual std::shared_ptr<const Segment> portable(const SegmentHandle& handle) const = 0;

  /// The layers that rectify recomputes for this model; not valid until it has been profiled.
  virtual LayerRange layer_range() const = 0;
  virtual void set_layer_range(LayerRange range) = 0;

  /// What was learned to happen to texts in the places of this model's prompts (method rectify); null: nothing.
  virtual void set_corrections(std::shared_ptr<const Corrections> corrections) = 0;
};

constexpr double kSlowdownCpu = 0.25;
constexpr double kSlowdownGpu = 0.10;
/// A GPU's products are fastest over many rows, and nobody waits for the step but who wants all of it.
constexpr std::int32_t kPrefillRowsGpu = 4096;

struct LocalEngineOptions {
  std::string device = "auto";
  int threads = 0;  // CPU threads; 0: one per core
  ModelOptions model;
  std::int64_t kv_budget_bytes = 0;       // 0: half of the free memory
  std::int64_t segment_budget_bytes = 0;  // kept for later prompts; 0: a third of kv_budget_bytes
  /// What of a device's segments may move to host memory; 0: a quarter of what the machine has available; below 0:
  /// none.
  std::int64_t host_segment_budget_bytes = 0;
  std::int64_t anchor_budget_bytes = 0;  // of those, at most this for anchors; 0: half
  std::int32_t max_step_rows = 512;      // rows of one step: prompts are split into chunks of at most this
  std::int32_t max_prefill_rows = 0;     // the same while nobody decodes; 0: max_step_rows, or kPrefillRowsGpu
  std::int32_t max_sequences = 64;       // running at once; further requests wait their turn
  /// By how much rows computed ahead may lengthen decode steps on average, as a part of a step; 0: kSlowdownCpu or
  /// kSlowdownGpu.
  double slowdown = 0.0;
};

/// Opens a model folder on a device and starts the engine's thread. Throws ModelError, BackendError.
std::shared_ptr<InferenceEngine> open_engine(const std::filesystem::path& model, const LocalEngineOptions& options);

}  // namespace baton
