// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/profile/layer_samples.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/base/random.h"

namespace baton {
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

}  // namespace baton
