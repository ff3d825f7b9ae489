// SPDX-License-Identifier: Apache-2.0
// Profiler: measures on a model the deviation of decoded values from those of a full prefill, layer by layer, and finds
// the layers that RelayCaching recomputes (docs/methods.md; RelayCaching, section 4.2).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/learning/layer_profile.h"
#include "engine/local_engine.h"

namespace baton {

/// An answer to one prompt inside another prompt. A model is profiled on hand-overs.
struct CalibrationHandOver {
  std::vector<TokenId> producer;  // the prompt that the answer follows
  std::vector<TokenId> answer;    // a given answer; empty: the model decodes one greedily
  std::vector<TokenId> before;    // the consumer's prompt before the answer
  std::vector<TokenId> after;     // the consumer's prompt after the answer
};

/// Returns the producer's request, greedy and with full prefill. It decodes an answer where the hand-over has none, and
/// is otherwise forced to the first `max_tokens` tokens of the given one.
GenerationRequest producer_request(const CalibrationHandOver& hand_over, std::int32_t max_tokens);
/// Returns the consumer's prompt with the answer in its place.
std::vector<PromptPart> consumer_prompt(const CalibrationHandOver& hand_over, PromptPart answer);

struct ProfilerOptions {
  std::int32_t max_tokens = 128;                  // maximum tokens of an answer
  std::int32_t min_tokens = 8;                    // shorter answers are left out
  std::uint64_t seed = 0;                         // seed of the bootstrap
  std::function<void(double share)> on_progress;  // gets the fraction done on the calling thread; may be empty
  std::stop_token stop;
};

struct MeasuredProfile {
  LayerCurves curves;
  Certainty certainty;
  FoundRange slope;
  FoundRange level;
  std::int32_t hand_overs = 0;  // measured hand-overs
  std::int32_t left_out = 0;    // hand-overs that are too short, or longer than the context
  std::int64_t tokens = 0;      // compared tokens
};

/// Returns the deviation below which two values differ only by the rounding of the cache's type.
double rounding_of(DType kv_dtype);

/// Measures all hand-overs, in shared steps. Empty when it was stopped. The calling thread waits; not to be called from
/// a callback of the engine. Throws EngineError when a request fails, ModelError when the model has fewer than 4 layers
/// or no hand-over could be measured.
std::optional<MeasuredProfile> measure_profile(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                               const ProfilerOptions& options);

}  // namespace baton
