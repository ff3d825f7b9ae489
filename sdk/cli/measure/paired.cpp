// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/paired.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace baton::cli {
namespace {

constexpr double kZ = 1.959963984540054;  // 97.5 % quantile of the normal distribution

Interval wilson_interval(double successes, double n) {
  const double p = successes / n, z2 = kZ * kZ;
  const double middle = p + z2 / (2 * n), half = kZ * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {(middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)};
}

}  // namespace

Interval newcombe_interval(std::int64_t both, std::int64_t first, std::int64_t second, std::int64_t neither) {
  const auto a = static_cast<double>(both), b = static_cast<double>(first), c = static_cast<double>(second),
             d = static_cast<double>(neither), n = a + b + c + d;
  if (n == 0) return {};
  const double p1 = (a + b) / n, p2 = (a + c) / n;
  const Interval one = wilson_interval(a + b, n), two = wilson_interval(a + c, n);
  const double margins = (a + b) * (c + d) * (a + c) * (b + d);
  double covariance = a * d - b * c;
  if (covariance > 0) covariance = std::max(covariance - n / 2, 0.0);  // the method's continuity correction
  const double phi = margins > 0 ? covariance / std::sqrt(margins) : 0.0;
  const auto distance = [&](double x, double y) { return std::sqrt(std::max(0.0, x * x - 2 * phi * x * y + y * y)); };
  return {p1 - p2 - distance(p1 - one.low, two.high - p2), p1 - p2 + distance(one.high - p1, p2 - two.low)};
}

Interval bootstrap_interval(std::span<const double> values, std::span<const double> weights, int draws,
                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> means;
  for (int draw = 0; draw < draws && !values.empty(); ++draw) {
    double sum = 0.0, weight = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = random() % values.size();  // no distribution: those differ between libraries
      sum += values[at];
      weight += weights[at];
    }
    if (weight > 0.0) means.push_back(sum / weight);
  }
  if (means.empty()) return {};
  std::sort(means.begin(), means.end());
  const auto at = [&](double quantile) {
    return means[static_cast<std::size_t>(std::llround(quantile * static_cast<double>(means.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

}  // namespace baton::cli
