// SPDX-License-Identifier: Apache-2.0
// HandOverMeasurement: the consumers of hand-overs answer with full prefill, and then again with reuse, forced to the
// same answers. The measure is KL(full || reuse) per token. Also the hand-overs to measure without data: word problems,
// the model's own answers, and other agents that read them; and the levels of reuse that method auto may take.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine/engine.h"
#include "engine/local_engine.h"
#include "engine/reuse/auto/levels.h"

namespace baton::inline v1::lab {

/// An answer to one prompt inside another prompt. A model is profiled on hand-overs.
struct CalibrationHandOver {
  std::vector<TokenId> producer;  // the prompt that the answer follows
  std::vector<TokenId> answer;    // a given answer; empty: the model decodes one greedily
  std::vector<TokenId> before;    // the consumer's prompt before the answer
  std::vector<TokenId> after;     // the consumer's prompt after the answer
};

/// `count` hand-overs whose answers the model still has to write. What stands before an answer in the producer's and in
/// the consumer's prompt differs in text and in length; prompts with an answer of `max_tokens` fit the model's context
/// if that is possible at all. The same seed gives the same hand-overs. Throws ModelError (chat template).
std::vector<CalibrationHandOver> synthetic_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                      std::uint64_t seed);

/// `count` hand-overs of given texts: lists of facts, which another agent is asked about. Throws ModelError.
std::vector<CalibrationHandOver> document_hand_overs(const Model& model, std::int32_t count, std::uint64_t seed);

/// Both kinds in turn, half of `count` each, to measure levels with.
std::vector<CalibrationHandOver> level_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                  std::uint64_t seed);

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

struct LevelOptions {
  std::int32_t reply_tokens = 24;                         // tokens of each consumer's answer that are compared
  std::vector<double> reuse = {0.9, 0.8, 0.7, 0.6, 0.5};  // the cheapest first
  std::size_t first = 4;                                  // hand-overs that are measured, however long they take
  std::chrono::milliseconds time{60'000};                 // the others too, where all are expected to end within it
};

/// Measures each level of method rectify in the layers LayerRange::by_depth, without learned corrections. Options and
/// errors are those of measure_profile; nothing when stopped, when no hand-over could be measured, and for a model with
/// too few layers.
std::optional<RelayLevels> measure_levels(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const LevelOptions& levels = {});

/// A prompt that was measured: what its guard saw, and its divergence.
struct GuardPoint {
  double left = 0.0, divergence = 0.0;
};
/// The geometric mean of divergence / left; 0: nothing was measured.
double fit_guard(std::span<const GuardPoint> points);

/// The level of the mean divergences of turns: their mean, and the 95 % quantile of the next turn by a log-normal
/// distribution (next_margin).
RelayLevel level_of(double reuse, std::span<const double> divergences);

}  // namespace baton::inline v1::lab
