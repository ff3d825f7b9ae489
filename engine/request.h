// SPDX-License-Identifier: Apache-2.0
// What goes into an engine and what comes out of it, as plain data: prompts made of parts, requests, prompts that are
// known in part and computed ahead, results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <baton/states.h>

#include "engine/kv/segment_handle.h"
#include "engine/model/sampler.h"
#include "engine/reuse/options.h"
#include "engine/text/tokenizer.h"

namespace baton {

class EngineError : public std::runtime_error {
 public:
  enum class Kind { too_long, memory, invalid };
  EngineError(Kind what_kind, const std::string& message) : std::runtime_error(message), kind(what_kind) {}
  Kind kind;
};

using RequestId = std::uint64_t;
using EarlyId = std::uint64_t;

/// A prompt is a list of parts, each already token ids: fixed text, or the value of a placeholder.
struct PromptPart {
  std::string slot;  // placeholder name; empty for fixed text
  std::vector<TokenId> tokens;
  SegmentHandle segment;     // KV of exactly these tokens, from the same engine; null: there is none
  std::int64_t readers = 0;  // above 0: the part becomes a segment itself, for this many later readers
  bool elsewhere = false;    // some of these readers are engines of other models: see InferenceEngine::portable
  /// Where there is no `segment`: KV of exactly these tokens from an engine of another model in the same format
  /// (kv_difference). null: there is none.
  std::shared_ptr<const Segment> portable;
  std::string without;  // why there is neither, for the report
};

/// What the anchors said of a placeholder.
struct AnchorUse {
  std::int32_t anchors = 0;       // that corrected it, or would have
  float ambiguity = 0.0f;         // entropy of their weights over log(anchors)
  float distance = 0.0f;          // of the nearest
  float predicted_error = -1.0f;  // relative error of K and V; below 0: unknown
};

/// How the KV of one part of the prompt was made.
struct PartUse {
  const Method* method = &method_of(MethodId::full);  // how its KV came into being: full, prefix, or the request's
  bool from_segment = false;
  bool corrected = false;          // by what was learned for this place (LocalEngine::set_corrections)
  std::string reason;              // why not by the method that the request names
  std::int64_t reused_tokens = 0;  // neither computed in full nor chosen by the method to be recomputed
  std::int64_t kv_reused = 0;      // entries (tokens x layers)
  std::int64_t kv_reusable = 0;    // the same if the method had chosen no token to be recomputed: what its layers allow
  std::int64_t ahead_tokens = 0;   // computed, but before all of the prompt was known
  int hops = 0;                    // of the segment
  std::optional<AnchorUse> anchors;
};

/// The phases of the time to first token, milliseconds.
struct PrefillTimes {
  double match = 0.0;        // finding prefixes and segments, making the schedule
  double copy = 0.0;         // copying and rotating them, and waiting for uploads from host memory
  double full_layers = 0.0;  // layers before the sparse ones; without those: all layers
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
  PrefillTimes prefill;                 // the phases of prefill_ms
  int hops = 0;                         // 0: computed exactly; n: the context held segments of n - 1 hops
  std::vector<PartUse> uses;            // one for each part of the prompt
  SegmentHandle output;                 // the answer as a segment, if the request asked for one and it was made
  std::vector<SegmentHandle> segments;  // one for each part of the prompt; null: the part did not become one
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
  EarlyId early = 0;                // the early prompt that this request takes over, which ends with submit; 0: none
  std::int64_t output_readers = 0;  // with reuse.record: how many later prompts will hold the answer
  bool output_elsewhere = false;    // some of those are prompts of other models
  std::string output_slot;          // the name of its placeholder there, for anchors
  std::string reader;               // whose prompt this is: "inspector", "inspector#2"
  std::vector<TokenId> forced;  // teacher forcing: the answer is these tokens, whatever the logits say; then it ends
  GenerationCallbacks callbacks;
};

/// A part of a prompt that is not completely known yet.
struct EarlyPart {
  std::vector<TokenId> tokens;
  RequestId follows = 0;  // above 0: the part is what this request decodes, token by token, instead of `tokens`
};

/// A prompt whose request will be submitted later. An engine may compute its KV ahead, exactly, in rows of the steps of
/// other requests.
struct EarlyPrompt {
  std::vector<EarlyPart> parts;  // from the first token on, as far as they are known
  bool complete = false;         // the prompt ends with the last of them
  std::int32_t longest = 0;      // the largest number of tokens that the prompt and its answer may have
  ReuseOptions reuse;            // as the request will have it; without `record`
};

}  // namespace baton
