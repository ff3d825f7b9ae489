// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/effect_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/learning/divergence.h"
#include "engine/learning/run_all.h"
#include "engine/reuse/between_models.h"

namespace baton {
namespace {

constexpr const char* kNoHandOver = "no hand-over both fits the context and is long enough to measure";

using Distributions = std::vector<std::vector<float>>;  // log probabilities of each token of an answer

/// Returns the effective number of values: (sum x)^2 / sum x^2.
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
  EffectMeasurement(LocalEngine& author, LocalEngine& reader, std::span<const CalibrationHandOver> hand_overs,
                    const ProfilerOptions& options, std::int32_t reply_tokens)
      : author_(author),
        reader_(reader),
        options_(options),
        reply_tokens_(reply_tokens),
        last_(reader.model().config.layers - 1) {
    for (const CalibrationHandOver& one : hand_overs) cases_.push_back({one, {}, {}});
  }

  /// Decodes the answers and measures full prefill on them. Returns false when stopped.
  bool prepare() {
    std::vector<GenerationRequest> requests;
    std::erase_if(cases_, [&](const Case& one) { return !fits(one.from.producer.size() + one.from.answer.size()); });
    for (const Case& one : cases_) requests.push_back(producer_request(one.from, options_.max_tokens));
    const auto answers = run_all(author_, std::move(requests), options_.stop);
    if (!answers) return false;
    for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].from.answer = (*answers)[i].tokens;
    std::erase_if(cases_, [&](const Case& one) {
      const CalibrationHandOver& from = one.from;
      const auto reply = static_cast<std::size_t>(reply_tokens_);
      return from.answer.size() < static_cast<std::size_t>(options_.min_tokens) ||
             !fits(from.before.size() + from.answer.size() + from.after.size() + reply);
    });
    requests.clear();
    for (Case& one : cases_) {
      requests.push_back(request_of(prompt_of(one, nullptr), reply_tokens_));
      requests.back().callbacks.on_logits = [&full = one.full](std::span<const float> logits) {
        full.push_back(log_probabilities(logits));
      };
    }
    const auto replies = run_all(reader_, std::move(requests), options_.stop);
    if (!replies) return false;
    for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].reply = (*replies)[i].tokens;
    return true;
  }

  /// Returns the mean divergence of each candidate; all candidates must have the same first layer.
  std::optional<std::vector<double>> measure(std::span<const RangeCandidate> candidates) {
    const auto segments = record(candidates.front().range, static_cast<std::int64_t>(candidates.size()));
    if (!segments) return std::nullopt;
    std::vector<double> sums(candidates.size() * cases_.size(), 0.0);  // added to on the engine's thread
    std::vector<GenerationRequest> requests;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        const Case& one = cases_[i];
        GenerationRequest request = request_of(prompt_of(one, (*segments)[i]), reply_tokens_);
        apply(candidates[c], request.reuse);
        request.forced = one.reply;
        request.callbacks.on_logits = [&sum = sums[c * cases_.size() + i], &full = one.full,
                                       at = std::size_t{0}](std::span<const float> logits) mutable {
          if (at < full.size()) sum += divergence(full[at++], log_probabilities(logits));
        };
        requests.push_back(std::move(request));
      }
    }
    const auto results = run_all(reader_, std::move(requests), options_.stop);
    if (!results) return std::nullopt;
    for (const GenerationResult& result : *results) {
      for (const PartUse& use : result.uses) {
        if (!use.reason.empty())
          throw EngineError(EngineError::Kind::memory, "an answer's KV was not reused: " + use.reason);
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

  /// The effective number of hand-overs of the first measured candidate.
  double weighty() const { return weighty_; }

  bool empty() const { return cases_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(cases_.size()); }
  std::int64_t tokens() const {
    return std::accumulate(cases_.begin(), cases_.end(), std::int64_t{0}, [](std::int64_t sum, const Case& one) {
      return sum + static_cast<std::int64_t>(one.full.size());
    });
  }

 private:
  struct Case {
    CalibrationHandOver from;
    std::vector<TokenId> reply;
    Distributions full;
  };

  bool fits(std::size_t tokens) const {
    return tokens <
           static_cast<std::size_t>(std::min(author_.model().options.context, reader_.model().options.context));
  }

  bool between() const { return &author_ != &reader_; }

  std::vector<PromptPart> prompt_of(const Case& one, const SegmentHandle& segment) const {
    PromptPart answer{"answer", one.from.answer};
    if (between() && segment)
      answer.portable = author_.portable(segment);
    else
      answer.segment = segment;
    return consumer_prompt(one.from, std::move(answer));
  }

  /// Makes the answers' segments, with the hidden states at the input of the range's first layer.
  std::optional<std::vector<SegmentHandle>> record(const LayerRange& range, std::int64_t readers) {
    std::vector<GenerationRequest> requests;
    for (const Case& one : cases_) {
      requests.push_back(producer_request(one.from, options_.max_tokens));
      requests.back().reuse.record = true;
      requests.back().reuse.range = {range.start, range.start + 1, last_};
      if (range.is_group(last_ + 1)) {
        requests.back().reuse.method = &method_of(MethodId::droidspeak);
        requests.back().reuse.range = range;
      }
      requests.back().output_readers = readers;
      requests.back().output_elsewhere = between();
    }
    auto results = run_all(author_, std::move(requests), options_.stop);
    if (!results) return std::nullopt;
    std::vector<SegmentHandle> segments;
    for (GenerationResult& result : *results) {
      if (!result.output) throw EngineError(EngineError::Kind::memory, "no memory to keep an answer's KV");
      segments.push_back(std::move(result.output));
    }
    return segments;
  }

  void apply(const RangeCandidate& candidate, ReuseOptions& reuse) const {
    const bool group = candidate.range.is_group(last_ + 1);
    reuse.method = &method_of(candidate.share <= 0 ? MethodId::direct
                              : group              ? MethodId::droidspeak
                                                   : MethodId::rectify);
    reuse.range = candidate.range;
    reuse.selection = {.suffix = 0, .share = candidate.share, .all = candidate.share >= 1};
  }

  LocalEngine& author_;
  LocalEngine& reader_;
  const ProfilerOptions& options_;
  const std::int32_t reply_tokens_;
  const std::int32_t last_;
  std::vector<Case> cases_;
  double weighty_ = 0.0;
};

/// Returns the fraction of all groups that begin before `start`.
double done_of(std::int32_t start, std::int32_t layers) {
  const double rest = 1.0 - static_cast<double>(start) / layers;
  return 1.0 - rest * rest;
}

}  // namespace

std::optional<LayerEffect> measure_effect(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect) {
  EffectMeasurement measurement(engine, engine, hand_overs, options, effect.reply_tokens);
  const std::int32_t layers = engine.model().config.layers;
  std::int32_t measured = 0;
  const auto progress = [&] {
    // About L candidates for the end, L for the detection layer, and one or two for the first layer.
    if (options.on_progress) options.on_progress(std::min(1.0, measured / (2.0 * layers)));
  };
  if (!measurement.prepare()) return std::nullopt;
  if (measurement.empty()) {
    LayerEffect nothing;
    nothing.problem = kNoHandOver;
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

std::vector<GroupPoint> frontier(std::vector<GroupPoint> points) {
  std::sort(points.begin(), points.end(), [](const GroupPoint& a, const GroupPoint& b) {
    return std::pair(a.layers(), a.left) < std::pair(b.layers(), b.left);
  });
  std::vector<GroupPoint> best;
  for (const GroupPoint& point : points) {
    if (best.empty() || point.left < best.back().left) best.push_back(point);
  }
  return best;
}

LayerRange cheapest_group(const std::vector<GroupPoint>& points, double left, std::int32_t layers) {
  for (const GroupPoint& point : frontier(points)) {
    if (point.left <= left) return LayerRange::group(point.start, point.end);
  }
  return LayerRange::group(0, layers - 1);
}

std::optional<GroupEffect> measure_groups(LocalEngine& author, LocalEngine& reader,
                                          std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const GroupOptions& groups) {
  const std::int32_t layers = reader.model().config.layers, step = std::max(groups.step, 1);
  if (const std::string difference = kv_difference(author.model(), reader.model()); !difference.empty())
    throw ModelError(fmt::format("{} and {} cannot hand KV over: {}", author.model().path.string(),
                                 reader.model().path.string(), difference));
  if (layers < 2)
    throw ModelError(fmt::format("{}: a model of one layer has no group of layers; expected at least 2 layers",
                                 reader.model().path.string()));
  EffectMeasurement measurement(author, reader, hand_overs, options, groups.reply_tokens);
  if (!measurement.prepare()) return std::nullopt;
  GroupEffect effect;
  effect.hand_overs = measurement.size();
  effect.tokens = measurement.tokens();
  if (measurement.empty()) {
    effect.problem = kNoHandOver;
    return effect;
  }
  const RangeCandidate none{LayerRange::group(0, layers - 1), 0.0};
  const auto direct = measurement.measure({&none, 1});
  if (!direct) return std::nullopt;
  effect.direct = direct->front();
  effect.weighty = measurement.weighty();
  for (std::int32_t start = 0; start < layers - 1; start += step) {
    if (options.on_progress) options.on_progress(done_of(start, layers));
    std::vector<RangeCandidate> candidates;
    for (std::int32_t end = start + step - 1; end < layers - 1 + step; end += step) {
      const LayerRange range = LayerRange::group(start, std::min(end, layers - 1));
      if (range.is_group(layers)) candidates.push_back({range});
    }
    const auto divergences = measurement.measure(candidates);
    if (!divergences) return std::nullopt;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double left = effect.direct > 0 ? (*divergences)[i] / effect.direct : 0.0;
      effect.points.push_back({candidates[i].range.start, candidates[i].range.end, left});
    }
  }
  if (options.on_progress) options.on_progress(1.0);
  return effect;
}

}  // namespace baton
