// SPDX-License-Identifier: Apache-2.0
// HandOverMeasurement: the consumers of hand-overs answer with full prefill, and then again with reuse, forced to the
// same answers. The measure is KL(full || reuse) per token.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/engine.h"
#include "engine/learning/profiler.h"

namespace baton {
/// What is under way, 0 to 1, on the calling thread: finished requests, and what the others have decoded.
using BatchProgress = std::function<void(double share)>;

/// Runs the requests to their ends, in shared steps; the results are in their order. Empty when it was stopped. The
/// calling thread waits, whatever happens, until the engine is done with all of them; it must not be the engine's.
/// A request's own on_finished is called too, on the engine's thread, and may throw; its on_token is replaced.
/// Throws EngineError when the engine refuses one or one fails, and what `progress` throws.
std::optional<std::vector<GenerationResult>> run_all(InferenceEngine& engine, std::vector<GenerationRequest> requests,
                                                     const std::stop_token& stop, const BatchProgress& progress = {});

/// One thread. The engines may be the same; their models have equal KV formats (kv_difference).
class HandOverMeasurement {
 public:
  /// `reply_tokens`: tokens of each consumer's answer. The references must outlive this object.
  HandOverMeasurement(LocalEngine& author, LocalEngine& reader, std::span<const CalibrationHandOver> hand_overs,
                      const ProfilerOptions& options, std::int32_t reply_tokens);

  /// Decodes the answers and measures full prefill on them. Returns false when stopped. `progress` gets the fraction
  /// done, 0 to 1, on the calling thread; so does that of measure().
  bool prepare(const BatchProgress& progress = {});

  /// Returns, of each candidate, the mean divergence of each consumer's answer in nats per token; nothing when stopped.
  /// All candidates need hidden states of the same layer. `left`: gets GenerationResult::guard_left of each. Throws
  /// EngineError when there is no memory for the KV.
  std::optional<std::vector<std::vector<double>>> measure(std::span<const ReuseOptions> candidates,
                                                          std::vector<std::vector<double>>* left = nullptr,
                                                          const BatchProgress& progress = {});
  /// The mean over all tokens of a candidate's divergences.
  double mean_of(std::span<const double> divergences) const;

  bool empty() const { return cases_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(cases_.size()); }
  std::int64_t tokens() const;

 private:
  struct Case {
    CalibrationHandOver from;
    std::vector<TokenId> reply;
    std::vector<std::vector<float>> full;  // log probabilities of each token of the reply
  };

  bool fits(std::size_t tokens) const;
  bool between() const { return &author_ != &reader_; }
  std::vector<PromptPart> prompt_of(const Case& one, const SegmentHandle& segment) const;
  std::optional<std::vector<SegmentHandle>> record(const ReuseOptions& candidate, std::int64_t readers);

  LocalEngine& author_;
  LocalEngine& reader_;
  const ProfilerOptions& options_;
  const std::int32_t reply_tokens_;
  const std::int32_t last_;
  std::vector<Case> cases_;
};

}  // namespace baton
