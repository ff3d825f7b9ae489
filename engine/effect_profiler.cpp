#include "engine/effect_profiler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/divergence.h"
#include "engine/run_all.h"

namespace baton {
namespace {

using Distributions = std::vector<std::vector<float>>;  // log probabilities of each token of an answer

/// How many equal values would spread the sum as widely: (sum x)^2 / sum x^2.
double effective_size(std::span<const double> values) {
  double sum = 0.0, squares = 0.0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0.0 ? sum * sum / squares : 0.0;
}

GenerationRequest request_of(std::vector<PromptPart> prompt, std::int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.reuse.min_tokens = 1;
  request.reuse.prefix = false;
  return request;
}

class EffectMeasurement {
 public:
  EffectMeasurement(Engine& engine, std::span<const CalibrationHandOver> hand_overs, const ProfilerOptions& options,
                    const EffectOptions& effect)
      : engine_(engine), options_(options), effect_(effect), last_(engine.model().config.layers - 1) {
    for (const CalibrationHandOver& one : hand_overs) cases_.push_back({one, {}, {}});
  }

  /// The answers, and what full prefill makes of them. False when it was stopped.
  bool prepare() {
    std::vector<GenerationRequest> requests;
    std::erase_if(cases_, [&](const Case& one) { return !fits(one.from.producer.size() + one.from.answer.size()); });
    for (const Case& one : cases_) requests.push_back(producer_request(one.from, options_.max_tokens));
    const auto answers = run_all(engine_, std::move(requests), options_.stop);
    if (!answers) return false;
    for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].from.answer = (*answers)[i].tokens;
    std::erase_if(cases_, [&](const Case& one) {
      const CalibrationHandOver& from = one.from;
      const auto reply = static_cast<std::size_t>(effect_.reply_tokens);
      return from.answer.size() < static_cast<std::size_t>(options_.min_tokens) ||
             !fits(from.before.size() + from.answer.size() + from.after.size() + reply);
    });
    requests.clear();
    for (Case& one : cases_) {
      requests.push_back(request_of(prompt_of(one, nullptr), effect_.reply_tokens));
      requests.back().callbacks.on_logits = [&full = one.full](std::span<const float> logits) {
        full.push_back(log_probabilities(logits));
      };
    }
    const auto replies = run_all(engine_, std::move(requests), options_.stop);
    if (!replies) return false;
    for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].reply = (*replies)[i].tokens;
    return true;
  }

  /// Mean divergence of each candidate; all of them have the same first layer.
  std::optional<std::vector<double>> measure(std::span<const RangeCandidate> candidates) {
    const auto segments = record(candidates.front().range.start, static_cast<std::int64_t>(candidates.size()));
    if (!segments) return std::nullopt;
    std::vector<double> sums(candidates.size() * cases_.size(), 0.0);  // added to on the engine's thread
    std::vector<GenerationRequest> requests;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        const Case& one = cases_[i];
        GenerationRequest request = request_of(prompt_of(one, (*segments)[i]), effect_.reply_tokens);
        apply(candidates[c], request.reuse);
        request.forced = one.reply;
        request.callbacks.on_logits = [&sum = sums[c * cases_.size() + i], &full = one.full,
                                       at = std::size_t{0}](std::span<const float> logits) mutable {
          if (at < full.size()) sum += divergence(full[at++], log_probabilities(logits));
        };
        requests.push_back(std::move(request));
      }
    }
    const auto results = run_all(engine_, std::move(requests), options_.stop);
    if (!results) return std::nullopt;
    for (const GenerationResult& result : *results) {
      for (const PartUse& use : result.uses) {
        if (!use.reason.empty())
          throw EngineError(EngineError::Kind::memory, "an answer was not reused: " + use.reason);
      }
    }
    std::size_t tokens = 0;
    for (const Case& one : cases_) tokens += one.full.size();
    std::vector<double> means;
    for (auto sum = sums.begin(); sum != sums.end(); sum += static_cast<std::ptrdiff_t>(cases_.size())) {
      const std::span<const double> of(&*sum, cases_.size());
      means.push_back(std::accumulate(of.begin(), of.end(), 0.0) /
                      static_cast<double>(std::max<std::size_t>(1, tokens)));
      if (weighty_ == 0.0) weighty_ = effective_size(of);
    }
    return means;
  }

  /// Of the first candidate that was measured.
  double weighty() const { return weighty_; }

  bool empty() const { return cases_.empty(); }

 private:
  struct Case {
    CalibrationHandOver from;
    std::vector<TokenId> reply;
    Distributions full;
  };

  bool fits(std::size_t tokens) const { return tokens < static_cast<std::size_t>(engine_.model().options.context); }

  static std::vector<PromptPart> prompt_of(const Case& one, SegmentHandle segment) {
    return consumer_prompt(one.from, {"answer", one.from.answer, std::move(segment), 0});
  }

  /// The answers' segments, with the hidden states at the input of `start`.
  std::optional<std::vector<SegmentHandle>> record(std::int32_t start, std::int64_t readers) {
    std::vector<GenerationRequest> requests;
    for (const Case& one : cases_) {
      requests.push_back(producer_request(one.from, options_.max_tokens));
      requests.back().reuse.record = true;
      requests.back().reuse.range = {start, start + 1, last_};
      requests.back().output_readers = readers;
    }
    auto results = run_all(engine_, std::move(requests), options_.stop);
    if (!results) return std::nullopt;
    std::vector<SegmentHandle> segments;
    for (GenerationResult& result : *results) {
      if (!result.output) throw EngineError(EngineError::Kind::memory, "no memory to keep an answer's KV");
      segments.push_back(std::move(result.output));
    }
    return segments;
  }

  static void apply(const RangeCandidate& candidate, ReuseOptions& reuse) {
    reuse.method = candidate.share > 0 ? "relay" : "direct";
    reuse.range = candidate.range;
    reuse.selection = {.suffix = 0, .share = candidate.share, .all = candidate.share >= 1};
  }

  Engine& engine_;
  const ProfilerOptions& options_;
  const EffectOptions& effect_;
  const std::int32_t last_;
  std::vector<Case> cases_;
  double weighty_ = 0.0;
};

}  // namespace

std::optional<LayerEffect> measure_effect(Engine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect) {
  EffectMeasurement measurement(engine, hand_overs, options, effect);
  const std::int32_t layers = engine.model().config.layers;
  std::int32_t measured = 0;
  const auto progress = [&] {
    // About L ends, L detections, and a first layer or two.
    if (options.on_progress) options.on_progress(std::min(1.0, measured / (2.0 * layers)));
  };
  if (!measurement.prepare()) return std::nullopt;
  if (measurement.empty()) {
    LayerEffect nothing;
    nothing.problem = "no hand-over is short enough for the context, and long enough to measure";
    return nothing;
  }
  auto found = search_range(
      layers,
      [&](std::span<const RangeCandidate> candidates) {
        auto divergences = measurement.measure(candidates);
        measured += static_cast<std::int32_t>(candidates.size());
        progress();
        return divergences;
      },
      effect.search);
  if (found) found->weighty = measurement.weighty();
  return found;
}

}  // namespace baton
