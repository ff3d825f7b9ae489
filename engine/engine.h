// SPDX-License-Identifier: Apache-2.0
// The engine's interface: requests with their options and results, and InferenceEngine, which runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/states.h>

#include "engine/kv/segment_handle.h"
#include "engine/model/sampler.h"
#include "engine/reuse/between_models.h"
#include "engine/reuse/options.h"
#include "engine/reuse/prompt_part.h"
#include "engine/text/templates.h"
#include "engine/text/tokenizer.h"

namespace baton {

class Grammar;

class EngineError : public std::runtime_error {
 public:
  /// too_long: for the context; over_budget: for the memory for KV, even alone: both would be so the next time.
  enum class Kind { too_long, over_budget, memory, invalid };
  EngineError(Kind what_kind, const std::string& message) : std::runtime_error(message), kind(what_kind) {}
  Kind kind;
};

using RequestId = std::uint64_t;
using EarlyId = std::uint64_t;

/// The phases of a prefill, in milliseconds.
struct PrefillTimes {
  double match = 0.0;        // prefix and segment lookup, and making the schedule
  double copy = 0.0;         // copying and rotating reused KV, and waiting for uploads from host memory
  double full_layers = 0.0;  // layers before the sparse layers; all layers where no layer is sparse
  double detect = 0.0;
  double sparse_layers = 0.0;  // layers in which only text and chosen tokens run
  double tail = 0.0;           // layers after the sparse layers, in which only text runs, and the logits
};

struct GenerationResult {
  FinishReason reason = FinishReason::eos;
  std::vector<TokenId> tokens;      // generated tokens, without the EOS and without the tokens of a stop string
  std::string text;                 // decoded, cut before the stop string
  std::string error;                // set when reason is FinishReason::error
  std::string lost_kv{};            // why KV that others were to read could not be kept; empty: it could
  std::string server_reason{};      // the server's word, when reason is FinishReason::other
  std::int64_t output_tokens = -1;  // of the answer, where `tokens` are not the model's own; below 0: they are
  std::int64_t prompt_tokens = 0;
  std::int64_t kv_entries = 0;          // prompt tokens x layers
  std::int64_t kv_computed = 0;         // entries that were computed rather than reused
  std::int64_t kv_ahead = 0;            // computed entries from before all of the prompt was known
  double queue_ms = 0.0;                // from submit to the first step
  double prefill_ms = 0.0;              // from the first step to the logits of the last prompt token
  double ttft_ms = 0.0;                 // from submit to the first token
  double decode_ms = 0.0;               // from the first token to the last
  PrefillTimes prefill;                 // the phases of prefill_ms
  std::int64_t drafted_tokens = 0;      // tokens that ran as drafts (engine/loop/speculation.h)
  std::int64_t accepted_tokens = 0;     // drafted tokens that were chosen
  double tentative_ms = 0.0;            // verified: from submit to the first tentative token; 0: there was none
  std::int64_t tentative_tokens = 0;    // verified: tokens written before the prompt had exact KV
  std::int64_t confirmed_tokens = 0;    // tentative tokens that are in the answer
  bool thought = false;                 // GenerationRequest::thinking: the model began to think; `text` is what it
                                        // thought, without the markers, which are in `tokens`
  std::string thinking_rest;            // ThinkingReader::rest
  std::string thinking;                 // what the model thought in front of the answer, as a server separates it; it
                                        // is not in `text`
  std::int64_t thinking_tokens = 0;     // of `thinking`; not in `output_tokens`
  std::vector<double> choices;          // probabilities of GenerationRequest::choices (ChoiceScores)
  float expected_nats = -1.0f;          // ReuseDecision::predicted, if texts were handed over
  float guard_left = -1.0f;             // Guard::left of the prompt; below 0: nothing was measured
  float guard_nats = -1.0f;             // auto: the divergence that the guard expects, nats per token; below 0: unknown
  std::int64_t decisions = 0;           // auto: made on handed-over KV (Decision in engine/loop/answer_writer.h)
  std::int64_t decisions_exact = 0;     // of these: so near that they were made again on exact KV
  std::int64_t decisions_changed = 0;   // of these: with another outcome
  int hops = 0;                         // 0: exact KV; n: the context held segments of n - 1 hops
  std::vector<PartUse> uses;            // one for each part of the prompt
  SegmentHandle output;                 // the answer as a segment; null unless requested and made
  std::vector<SegmentHandle> segments;  // one for each part of the prompt; null: the part did not become one
  std::int64_t continued_tokens = 0;    // first tokens of the prompt whose KV was there: of a prefix or of `context`
  ContextHandle context;                // of the prompt and the answer; null unless requested and made
  std::int64_t stored_tokens = 0;       // tokens of the prompt whose KV came from the store (engine/kv/kv_store.h)
  double stored_ms = 0.0;               // that the prompt waited for it
};

/// The engine's thread calls the callbacks in order, one at a time. A callback must return soon; it may call submit and
/// cancel.
struct GenerationCallbacks {
  std::function<void(const GenerationResult& so_far)> on_prefilled;  // prompt counts and times are filled in
  /// While a prompt takes longer than LocalEngineOptions::progress_ms: tokens of the prompt with KV so far, and all.
  std::function<void(std::int64_t tokens, std::int64_t prompt_tokens)> on_prefill_progress;
  std::function<void(TokenId id, const std::string& text)> on_token;
  /// The next text of GenerationResult::thinking.
  std::function<void(const std::string& text)> on_thinking;
  /// Method verified: tokens that are checked later. When they have been, on_confirmed comes, with the number of first
  /// tentative tokens that stay, and then the answer from its first token on with on_token.
  std::function<void(TokenId id, const std::string& text)> on_tentative_token;
  std::function<void(std::int64_t kept, std::int64_t tentative)> on_confirmed;
  std::function<void(std::span<const float> logits)> on_logits;  // [V], before each token is chosen
  std::function<void(GenerationResult)> on_finished;             // exactly once for each accepted request
};

struct GenerationRequest {
  std::vector<PromptPart> prompt;
  SamplingParams sampling;
  std::int32_t max_tokens = 256;
  std::vector<std::string> stop;  // the output ends before the first of these strings; they must not be empty
  /// What the answer is as a whole (engine/text/constrain/grammar.h): only tokens that can lead there are chosen, and
  /// the answer ends where nothing can follow. It may end at max_tokens before it is whole. Excludes `stop`; without
  /// effect on forced tokens. Null: any text.
  std::shared_ptr<const Grammar> constraint;
  /// The answer is the most probable of these, whatever `sampling`, `max_tokens` and `stop` are;
  /// GenerationResult::choices has their probabilities. Each has at least one token; the longest must fit the context
  /// behind the prompt. Excludes `constraint`. Empty: any text.
  std::vector<std::vector<TokenId>> choices;
  /// The request is for the model's thinking alone: it ends behind the marker of the end and the blanks there, or at
  /// once if the model writes no marker of the beginning. Excludes `stop`, `constraint` and `choices`.
  std::optional<ThinkingMarks> thinking;
  ReuseOptions reuse;
  EarlyId early = 0;  // the early prompt that this request takes over; submit ends it; 0: none
  /// KV that is reused as far as the prompt begins with the same tokens, by every method that reuses prefixes; by an
  /// exact one, as far as it is exact. Null: none.
  ContextHandle context;
  bool keep_context = false;        // the result has the context of the prompt and the answer
  std::int64_t output_readers = 0;  // with reuse.record: number of later prompts that will hold the answer
  bool export_output = false;       // some of these later prompts are for other models
  std::string output_slot;          // the answer's placeholder in the later prompts
  std::string reader;               // whose prompt this is: "inspector", "inspector#2"
  std::uint64_t run = 0;  // running requests of the same number, above 0, hand the texts of their prompts to each other
  std::vector<TokenId> forced;  // teacher forcing: the answer consists of exactly these tokens
  GenerationCallbacks callbacks;
};

/// A part of an early prompt.
struct EarlyPart {
  TokenText tokens;
  RequestId decoded_by = 0;  // above 0: the part is what this request decodes, and `tokens` is unused
  /// The request will probably hold a segment of the part. Where auto rectifies it, nothing from here on is computed
  /// ahead.
  bool handed_over = false;
  std::string slot;  // placeholder name; empty for fixed text
};

/// A prompt whose request will be submitted later. An engine may prefill it ahead, exactly, with rows that it adds to
/// the steps of other requests.
struct EarlyPrompt {
  std::vector<EarlyPart> parts;  // the known parts, from the first token on
  bool complete = false;         // the prompt ends with the last of `parts`
  std::int32_t longest = 0;      // maximum tokens of the prompt and its answer together
  ReuseOptions reuse;            // the options that the request will have; without `record`, except with auto
  std::string reader;            // that of the request
  ContextHandle context{};       // that of the request; its exact beginning is taken
  bool keep_context = false;     // that of the request
};

// InferenceEngine: the entry of the engine layer for the workflow layer. It is what any engine can do, in this process
// or elsewhere: a caller submits requests, follows their callbacks, and builds prompts with the
// model's text side. engine/local_engine.h adds what only an engine in this process can do. See docs/architecture.md.

/// Facts about an engine and its model that do not change while it is open.
struct EngineInfo {
  std::string device;              // "cpu", "cuda:0"
  std::string device_description;  // "Intel Xeon ..., AVX-512, 2 threads"
  int threads = 1;                 // compute threads on the host
  std::int32_t context = 0;        // maximum tokens of a prompt and its answer together
  KvFormat kv;                     // engines with equal formats can read each other's KV
  std::string device_fallback;     // why `auto` took the CPU although a GPU is there, or empty
  std::int32_t ids_per_token = 1;  // of the tokenizer of a server that takes messages, whose ids are bytes: an estimate

  /// The tokens of so many ids of its tokenizer, rounded up: what `context` and limits of answers count.
  std::int64_t tokens_of(std::size_t ids) const {
    return (static_cast<std::int64_t>(ids) + ids_per_token - 1) / ids_per_token;
  }
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
  std::int64_t measured_turns = 0;  // turns that have been measured since the engine was opened
  double measured_ms = 0.0;         // by how much longer its steps were for that
  SegmentStoreStats segments;
  KvStoreStats store;
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
