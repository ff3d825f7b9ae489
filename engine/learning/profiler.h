// SPDX-License-Identifier: Apache-2.0
// Profiler: measures on a model how far decoded values are from those of a full prefill, layer by layer, and finds the
// layers that RelayCaching recomputes (docs/methods.md; RelayCaching, section 4.2).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/local_engine.h"
#include "engine/reuse/profile/layer_samples.h"

namespace baton {

/// An answer of one prompt inside another: what a model is profiled on.
struct CalibrationHandOver {
  std::vector<TokenId> producer;  // the prompt behind which the answer is decoded
  std::vector<TokenId> answer;    // as it was; empty: the model decodes one, greedily
  std::vector<TokenId> before;    // the consumer's prompt up to the answer
  std::vector<TokenId> after;     // and behind it
};

/// Greedy, by full prefill: decodes the answer where there is none, else is forced to its first `max_tokens`.
GenerationRequest producer_request(const CalibrationHandOver& hand_over, std::int32_t max_tokens);
/// The consumer's prompt with the answer in its place.
std::vector<PromptPart> consumer_prompt(const CalibrationHandOver& hand_over, PromptPart answer);

struct ProfilerOptions {
  std::int32_t max_tokens = 128;                  // of an answer
  std::int32_t min_tokens = 8;                    // a shorter answer says nothing and is left out
  std::uint64_t seed = 0;                         // of the bootstrap
  std::function<void(double share)> on_progress;  // what is done, 0 to 1; on the calling thread; may be empty
  std::stop_token stop;
};

struct MeasuredProfile {
  LayerCurves curves;
  Certainty certainty;
  FoundRange slope;
  FoundRange level;
  std::int32_t hand_overs = 0;  // that were measured
  std::int32_t left_out = 0;    // too short, or longer than the context
  std::int64_t tokens = 0;      // compared
};

/// The deviation below which two values differ by the rounding of the cache's type alone.
double rounding_of(DType kv_dtype);

/// Measures all hand-overs, in shared steps. Empty when it was stopped. The calling thread waits; not to be called from
/// a callback of the engine. Throws EngineError when a request fails, ModelError when the model has fewer than 4 layers
/// or no hand-over could be measured.
std::optional<MeasuredProfile> measure_profile(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                               const ProfilerOptions& options);

}  // namespace baton
