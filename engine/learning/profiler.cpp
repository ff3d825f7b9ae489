// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "engine/learning/hand_over_measurement.h"

namespace baton {
namespace {

/// Returns d = 1 - the mean over heads of the cosine of two rows of values (eq. 1).
double deviation(std::span<const float> a, std::span<const float> b, std::size_t head_width) {
  double cosines = 0.0;
  for (std::size_t begin = 0; begin < a.size(); begin += head_width) {
    double aa = 0.0, bb = 0.0, ab = 0.0;
    for (std::size_t i = begin; i < begin + head_width; ++i) {
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
      ab += static_cast<double>(a[i]) * b[i];
    }
    if (aa == 0 && bb == 0) cosines += 1.0;
    if (aa > 0 && bb > 0) cosines += ab / std::sqrt(aa * bb);
  }
  return 1.0 - cosines * static_cast<double>(head_width) / static_cast<double>(a.size());
}

/// Compares the tokens that have KV in both segments. Runs on the engine's thread.
LayerSample compare(const Segment& decoded, const Segment& prefilled) {
  const auto head_width = static_cast<std::size_t>(decoded.layout().shape.head_dim);
  const std::size_t width = head_width * static_cast<std::size_t>(decoded.layout().shape.kv_heads);
  const auto tokens = static_cast<std::size_t>(std::min(decoded.length(), prefilled.length()));
  std::vector<std::vector<double>> deviations;
  for (std::int32_t layer = 0; layer < decoded.layout().layers; ++layer) {
    const std::vector<float> a = decoded.values_on_host(layer), b = prefilled.values_on_host(layer);
    std::vector<double>& d = deviations.emplace_back();
    for (std::size_t t = 0; t < tokens; ++t) {
      d.push_back(
          deviation(std::span(a).subspan(t * width, width), std::span(b).subspan(t * width, width), head_width));
    }
  }
  return sample_of(deviations);
}

constexpr std::size_t kAtOnce = 16;  // hand-overs at a time, since their segments must fit the engine's budget

class ProfileMeasurement {
 public:
  ProfileMeasurement(LocalEngine& engine, const ProfilerOptions& options) : engine_(engine), options_(options) {}

  /// Returns false when stopped.
  bool add(std::span<const CalibrationHandOver> hand_overs, const BatchProgress& progress) {
    std::vector<const CalibrationHandOver*> known;
    std::vector<GenerationRequest> requests;
    for (const CalibrationHandOver& one : hand_overs) {
      if (!fits(one.producer.size() + one.answer.size())) continue;
      known.push_back(&one);
      GenerationRequest& request = requests.emplace_back(producer_request(one, options_.max_tokens));
      request.reuse.record = true;
      request.output_readers = 1;
    }
    const auto decoded =
        run_all(engine_, std::move(requests), options_.stop, [&](double share) { progress(0.8 * share); });
    if (!decoded) return false;

    std::vector<LayerSample> samples(
        known.size());  // written on the engine's thread; samples without tokens are left out
    requests.clear();
    for (std::size_t i = 0; i < known.size(); ++i) {
      const std::vector<TokenId>& answer = (*decoded)[i].tokens;
      if (!long_enough(answer) || !fits(known[i]->before.size() + answer.size() + known[i]->after.size())) continue;
      GenerationRequest& request = requests.emplace_back();
      request.prompt = consumer_prompt(*known[i], {"answer", answer, nullptr, 1});
      request.reuse.record = true;
      request.max_tokens = 1;
      const std::size_t part = known[i]->before.empty() ? 0 : 1;
      request.callbacks.on_finished = [this, part, &sample = samples[i],
                                       &decoded = (*decoded)[i].output](const GenerationResult& result) {
        if (result.reason == FinishReason::cancelled || result.reason == FinishReason::error) return;
        const auto before = engine_.segment(decoded), after = engine_.segment(result.segments.at(part));
        if (!before || !after) throw std::runtime_error("no memory to keep the values of an answer");
        sample = compare(*before, *after);
      };
    }
    const auto prefilled =
        run_all(engine_, std::move(requests), options_.stop, [&](double share) { progress(0.8 + 0.2 * share); });
    if (!prefilled) return false;
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(samples_),
                 [](const LayerSample& sample) { return sample.tokens > 0; });
    return true;
  }

  const std::vector<LayerSample>& samples() const { return samples_; }
  const std::string& why_left_out() const { return why_left_out_; }

 private:
  bool fits(std::size_t tokens) {
    const auto context = static_cast<std::size_t>(engine_.model().options.context);
    if (tokens < context) return true;
    why_left_out_ = fmt::format("a prompt has {} tokens; the context has {}", tokens, context);
    return false;
  }
  bool long_enough(const std::vector<TokenId>& answer) {
    if (answer.size() >= static_cast<std::size_t>(options_.min_tokens)) return true;
    why_left_out_ = fmt::format("an answer has {} tokens; expected at least {}", answer.size(), options_.min_tokens);
    return false;
  }

  LocalEngine& engine_;
  const ProfilerOptions& options_;
  std::vector<LayerSample> samples_;
  std::string why_left_out_;
};

}  // namespace

GenerationRequest producer_request(const CalibrationHandOver& hand_over, std::int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = {{"", hand_over.producer, nullptr, 0}};
  request.max_tokens = max_tokens;
  request.forced = hand_over.answer;
  request.forced.resize(std::min(request.forced.size(), static_cast<std::size_t>(max_tokens)));
  return request;
}

std::vector<PromptPart> consumer_prompt(const CalibrationHandOver& hand_over, PromptPart answer) {
  std::vector<PromptPart> prompt;
  if (!hand_over.before.empty()) prompt.push_back({"", hand_over.before, nullptr, 0});
  prompt.push_back(std::move(answer));
  if (!hand_over.after.empty()) prompt.push_back({"", hand_over.after, nullptr, 0});
  return prompt;
}

double rounding_of(DType kv_dtype) {
  // The cosine of two vectors that are rounded to within u per element differs by up to about u^2; a margin is added.
  constexpr double kUnit = 1.0 / 512;
  return kv_dtype == DType::f32 ? 1e-10 : 4 * kUnit * kUnit;
}

std::optional<MeasuredProfile> measure_profile(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                               const ProfilerOptions& options) {
  const std::string path = engine.model().path.string();
  if (const std::int32_t layers = engine.model().config.layers; layers < kMinRangeLayers) {
    throw ModelError(fmt::format("{}: a model of {} layers has no layer range; at least {} are needed", path, layers,
                                 kMinRangeLayers));
  }
  ProfileMeasurement measurement(engine, options);
  for (std::size_t begin = 0; begin < hand_overs.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, hand_overs.size() - begin);
    const auto progress = [&](double share) {
      const double done = static_cast<double>(begin) + share * static_cast<double>(count);
      if (options.on_progress) options.on_progress(done / static_cast<double>(hand_overs.size()));
    };
    if (!measurement.add(hand_overs.subspan(begin, count), progress)) return std::nullopt;
  }
  const std::vector<LayerSample>& samples = measurement.samples();
  if (samples.empty()) {
    const std::string& why = measurement.why_left_out();
    throw ModelError(fmt::format("{}: no hand-over could be measured{}{}", path, why.empty() ? "" : ": ", why));
  }
  const double rounding = rounding_of(engine.model().options.kv_dtype);
  MeasuredProfile profile;
  profile.curves = curves_of(samples, rounding);
  profile.certainty = bootstrap(samples, rounding, options.seed);
  profile.slope = find_range(profile.curves, EndReading::slope);
  profile.level = find_range(profile.curves, EndReading::level);
  profile.hand_overs = static_cast<std::int32_t>(samples.size());
  profile.left_out = static_cast<std::int32_t>(hand_overs.size() - samples.size());
  for (const LayerSample& sample : samples) profile.tokens += sample.tokens;
  return profile;
}

}  // namespace baton
