// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/layer_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "engine/base/random.h"

namespace baton::inline v1::lab {

namespace {

double at(const std::vector<double>& values, std::int32_t layer) { return values[static_cast<std::size_t>(layer)]; }

/// Returns the layer of lowest similarity, or the last layer when no layer deviates by more than rounding.
std::int32_t lowest_layer(const LayerCurves& curves) {
  const auto lowest = std::min_element(curves.similarity.begin(), curves.similarity.end());
  if (1.0 - *lowest <= curves.rounding) return static_cast<std::int32_t>(curves.similarity.size()) - 1;
  return static_cast<std::int32_t>(lowest - curves.similarity.begin());
}

std::int32_t start_layer(const LayerCurves& curves, std::int32_t lowest, const RangeSettings& settings) {
  std::int32_t start = 0;
  for (std::int32_t l = 0; l < lowest && at(curves.similarity, l) >= settings.similarity; ++l) start = l;
  return start;
}

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;
};

Spread spread_of_tail(const std::vector<double>& values, std::int32_t tail) {
  const auto count = std::min(values.size(), static_cast<std::size_t>(std::max(1, tail)));
  const std::span<const double> last(values.data() + values.size() - count, count);
  Spread spread;
  for (const double value : last) spread.mean += value / static_cast<double>(count);
  for (const double value : last)
    spread.deviation += (value - spread.mean) * (value - spread.mean) / static_cast<double>(count);
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

std::int32_t end_layer(const LayerCurves& curves, std::int32_t lowest, EndReading reading,
                       const RangeSettings& settings) {
  const std::vector<double>& level = curves.similarity;
  const auto layers = static_cast<std::int32_t>(level.size());
  std::vector<double> slope;  // slope[l - 1] is from layer l - 1 to l
  for (std::int32_t l = 1; l < layers; ++l) slope.push_back(at(level, l) - at(level, l - 1));
  const Spread slopes = spread_of_tail(slope, settings.tail);
  const Spread levels = spread_of_tail(level, settings.tail);
  const auto is_stable = [&](std::int32_t l) {
    return reading == EndReading::slope ? at(slope, l - 1) <= slopes.mean + settings.deviations * slopes.deviation
                                        : at(level, l) >= levels.mean - settings.deviations * levels.deviation;
  };
  std::int32_t rises = 0;
  std::int32_t stable = 0;  // in a row, up to l
  for (std::int32_t l = lowest + 1; l < layers; ++l) {
    // The end is the layer before the stable ones; the similarity must have risen before.
    const bool counts = reading == EndReading::level ? l - 1 > lowest : rises >= settings.rises;
    stable = is_stable(l) && counts ? stable + 1 : 0;
    if (stable == settings.stable) return l - settings.stable;
    if (at(slope, l - 1) > 0) ++rises;
  }
  return layers - 1;
}

/// The paper takes the first change of sign from positive to negative. Where growth slows down from the first layer on
/// (for example when the first layers are left out as rounding noise), a later change of sign is only a ripple of the
/// plateau: on the nano model it was layer 6 of 10. So the first clearly negative second difference counts.
std::int32_t detection_layer(const std::vector<double>& correlation, std::int32_t start, double flat) {
  for (std::int32_t l = 1; l + 1 < static_cast<std::int32_t>(correlation.size()); ++l) {
    const double bend = at(correlation, l + 1) - 2 * at(correlation, l) + at(correlation, l - 1);
    if (bend < -flat) return std::max(l, start) + 1;  // false for NaN
  }
  return start + 1;
}

/// The paper's reading of eq. 4: the first layer above l_s in which the second difference turns negative.
std::int32_t turning_layer(const std::vector<double>& correlation, std::int32_t start) {
  const auto bend = [&](std::int32_t l) {
    return at(correlation, l + 1) - 2 * at(correlation, l) + at(correlation, l - 1);
  };
  for (std::int32_t l = std::max(2, start + 1); l + 1 < static_cast<std::int32_t>(correlation.size()); ++l) {
    if (bend(l - 1) > 0.0 && bend(l) < 0.0) return l + 1;  // false for NaN
  }
  return start + 1;
}

/// Returns [n]: the rank of each value, from 1; equal values get the mean of their ranks.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + end + 1);
    begin = end;
  }
  return ranks;
}

}  // namespace

const char* name_of(EndReading reading) { return reading == EndReading::slope ? "slope" : "level"; }

FoundRange find_range(const LayerCurves& curves, EndReading reading, const RangeSettings& settings) {
  const auto layers = static_cast<std::int32_t>(curves.similarity.size());
  if (layers > 0 && curves.correlation.size() + 1 != curves.similarity.size()) {
    throw std::invalid_argument(
        fmt::format("layer range: {} correlations for {} layers; expected one fewer than layers",
                    curves.correlation.size(), layers));
  }
  if (layers < kMinRangeLayers) {
    return {{},
            fmt::format("a model of {} layers has no layer range; at least {} are needed", layers, kMinRangeLayers)};
  }
  for (std::int32_t l = 0; l < layers; ++l) {
    if (!std::isfinite(at(curves.similarity, l)))
      return {{}, fmt::format("the similarity of layer {} is not a number", l)};
  }
  if (settings.own_kv < 2) return {{}, "fewer than two layers have keys and values of their own"};
  const std::int32_t lowest = lowest_layer(curves);
  LayerRange range;
  range.start = std::min({start_layer(curves, lowest, settings), layers - 3, settings.own_kv - 2});
  range.end = std::clamp(end_layer(curves, lowest, reading, settings), range.start + 2, layers - 1);
  range.detect = std::min(settings.turn ? turning_layer(curves.correlation, range.start)
                                        : detection_layer(curves.correlation, range.start, settings.flat),
                          std::min(range.end, settings.own_kv) - 1);
  return {range, {}};
}

double spearman(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw std::invalid_argument(fmt::format("spearman: {} values and {}", a.size(), b.size()));
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (a.size() < 2 || std::any_of(a.begin(), a.end(), is_nan) || std::any_of(b.begin(), b.end(), is_nan))
    return kUnknown;
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = 0.5 * static_cast<double>(a.size() + 1);
  double xx = 0.0, yy = 0.0, xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
    xy += (x[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kUnknown;
}

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Sums of a curve and of its squares over resamples, without NaN values.
class ValueSpread {
 public:
  explicit ValueSpread(std::size_t size) : count_(size), sum_(size), squares_(size) {}

  void add(const std::vector<double>& curve) {
    for (std::size_t i = 0; i < curve.size(); ++i) {
      if (std::isnan(curve[i])) continue;
      count_[i] += 1;
      sum_[i] += curve[i];
      squares_[i] += curve[i] * curve[i];
    }
  }

  std::vector<double> errors() const {
    std::vector<double> errors(count_.size(), kUnknown);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (count_[i] < 2) continue;
      const double mean = sum_[i] / count_[i];
      errors[i] = std::sqrt(std::max(0.0, squares_[i] / count_[i] - mean * mean));
    }
    return errors;
  }

 private:
  std::vector<double> count_, sum_, squares_;
};

void count(Agreement& agreement, const LayerRange& range, const LayerRange& all, double weight) {
  const bool start = range.start == all.start, detect = range.detect == all.detect, end = range.end == all.end;
  agreement.start += start ? weight : 0.0;
  agreement.detect += detect ? weight : 0.0;
  agreement.end += end ? weight : 0.0;
  agreement.all += start && detect && end ? weight : 0.0;
}

}  // namespace

LayerSample sample_of(const std::vector<std::vector<double>>& deviations) {
  LayerSample sample;
  for (std::size_t l = 0; l < deviations.size(); ++l) {
    double sum = 0.0;
    for (const double d : deviations[l]) sum += d;
    sample.tokens = static_cast<std::int64_t>(deviations[l].size());
    sample.deviation.push_back(sum / static_cast<double>(sample.tokens));
    if (l > 0) sample.correlation.push_back(spearman(deviations[l - 1], deviations[l]));
  }
  return sample;
}

LayerCurves curves_of(std::span<const LayerSample> samples, double rounding) {
  if (samples.empty()) throw std::invalid_argument("layer profile: found no samples; expected at least 1");
  const std::size_t layers = samples.front().deviation.size();
  LayerCurves curves;
  curves.rounding = rounding;
  curves.similarity.assign(layers, 0.0);
  curves.correlation.assign(layers > 0 ? layers - 1 : 0, 0.0);
  std::vector<double> known(curves.correlation.size(), 0.0);
  double tokens = 0.0;
  for (const LayerSample& sample : samples) {
    if (sample.deviation.size() != layers)
      throw std::invalid_argument("layer profile: the samples differ in their number of layers");
    const auto weight = static_cast<double>(sample.tokens);
    tokens += weight;
    for (std::size_t l = 0; l < layers; ++l) curves.similarity[l] += weight * (1.0 - sample.deviation[l]);
    for (std::size_t l = 0; l < known.size(); ++l) {
      if (std::isnan(sample.correlation[l])) continue;
      curves.correlation[l] += sample.correlation[l];
      known[l] += 1.0;
    }
  }
  for (double& similarity : curves.similarity) similarity /= tokens;
  for (std::size_t l = 0; l < known.size(); ++l) {
    const bool noise = 1.0 - curves.similarity[l] <= rounding || 1.0 - curves.similarity[l + 1] <= rounding;
    curves.correlation[l] = noise || known[l] == 0 ? kUnknown : curves.correlation[l] / known[l];
  }
  return curves;
}

Certainty bootstrap(std::span<const LayerSample> samples, double rounding, std::uint64_t seed, std::int32_t resamples,
                    const RangeSettings& settings) {
  const LayerCurves all = curves_of(samples, rounding);
  const LayerRange slope = find_range(all, EndReading::slope, settings).range;
  const LayerRange level = find_range(all, EndReading::level, settings).range;
  ValueSpread similarity(all.similarity.size()), correlation(all.correlation.size());
  Certainty certainty;
  std::vector<LayerSample> drawn(samples.size());
  for (std::int32_t i = 0; i < resamples; ++i) {
    for (LayerSample& sample : drawn) sample = samples[next_random(seed) % samples.size()];
    const LayerCurves curves = curves_of(drawn, rounding);
    similarity.add(curves.similarity);
    correlation.add(curves.correlation);
    const double weight = 1.0 / static_cast<double>(resamples);
    count(certainty.slope, find_range(curves, EndReading::slope, settings).range, slope, weight);
    count(certainty.level, find_range(curves, EndReading::level, settings).range, level, weight);
  }
  certainty.similarity_error = similarity.errors();
  certainty.correlation_error = correlation.errors();
  return certainty;
}

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
LayerSample compare(const Segment& decoded, const Segment& prefilled, const ModelConfig& config) {
  const KvLayout& layout = decoded.layout();
  const auto tokens = static_cast<std::size_t>(std::min(decoded.length(), prefilled.length()));
  std::vector<std::vector<double>> deviations;
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    const std::int32_t read = config.kv_layer(layer);
    const auto head_width = static_cast<std::size_t>(layout.shape(read).head_dim);
    const auto width = static_cast<std::size_t>(layout.shape(read).width());
    const std::vector<float> a = values_on_host(decoded, read), b = values_on_host(prefilled, read);
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
        sample = compare(*before, *after, engine_.model().config);
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
  const RangeSettings settings{.own_kv = engine.model().config.first_kv_reader()};
  profile.certainty = bootstrap(samples, rounding, options.seed, 1000, settings);
  profile.slope = find_range(profile.curves, EndReading::slope, settings);
  profile.level = find_range(profile.curves, EndReading::level, settings);
  profile.hand_overs = static_cast<std::int32_t>(samples.size());
  profile.left_out = static_cast<std::int32_t>(hand_overs.size() - samples.size());
  for (const LayerSample& sample : samples) profile.tokens += sample.tokens;
  return profile;
}

LayerRange paper_range_of(const StoredProfile& profile, double rounding, std::int32_t own_kv) {
  const RangeSettings settings{.turn = true, .own_kv = own_kv};
  return find_range({profile.similarity, profile.correlation, rounding}, EndReading::slope, settings).range;
}

StoredProfile to_stored(const MeasuredProfile& measured, const Model& model, std::string source) {
  for (const FoundRange* found : {&measured.slope, &measured.level}) {
    if (!found->problem.empty()) throw ModelError(fmt::format("{}: {}", model.path.string(), found->problem));
  }
  return {.fingerprint = model.fingerprint,
          .source = std::move(source),
          .hand_overs = measured.hand_overs,
          .tokens = measured.tokens,
          .similarity = measured.curves.similarity,
          .similarity_error = measured.certainty.similarity_error,
          .correlation = measured.curves.correlation,
          .correlation_error = measured.certainty.correlation_error,
          .slope = measured.slope.range,
          .level = measured.level.range,
          .slope_agreement = measured.certainty.slope,
          .level_agreement = measured.certainty.level};
}

}  // namespace baton::inline v1::lab
