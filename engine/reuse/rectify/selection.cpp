// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/rectify/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace baton {
namespace {

constexpr float kRounding = 1e-6f;  // deviation of equal values with different intermediate rounding

double mean(std::span<const float> values) {
  return values.empty() ? 0.0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Adds the tokens whose value is above threshold * mean.
void add_above(std::vector<bool>& chosen, std::span<const float> values, double threshold, double floor) {
  const double bound = std::max(threshold * mean(values), floor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > bound) chosen[i] = true;
  }
}

/// Chooses options.count, or else options.share, of the tokens by score. Head and suffix count towards the fraction,
/// the head first.
std::vector<bool> best_share(const SelectionOptions& options, std::span<const float> values) {
  const std::size_t n = values.size();
  std::vector<double> scores(values.begin(), values.end());
  const auto count = options.count >= 0 ? static_cast<std::size_t>(options.count)
                                        : static_cast<std::size_t>(std::ceil(options.share * static_cast<double>(n)));
  const auto part = [&](std::int32_t tokens) {
    return std::min({n, count, static_cast<std::size_t>(std::max(0, tokens))});
  };
  for (std::size_t i = n - part(options.suffix); i < n; ++i) scores[i] = 1e30;
  for (std::size_t i = 0; i < part(options.head); ++i) scores[i] = HUGE_VAL;
  return largest(scores, count);
}

/// Adds to each score its value as a multiple of the bound threshold * mean, where that is larger.
void raise_to_multiples(std::vector<float>& scores, std::span<const float> values, double threshold, double floor) {
  const double bound = threshold * mean(values);
  for (std::size_t i = 0; bound > 0.0 && i < values.size(); ++i) {
    if (values[i] > floor) scores[i] = std::max(scores[i], static_cast<float>(values[i] / bound));
  }
}

}  // namespace

std::vector<bool> largest(std::span<const double> scores, std::size_t count) {
  using Scored = std::pair<double, std::size_t>;
  std::vector<Scored> order;
  order.reserve(scores.size());
  for (std::size_t i = scores.size(); i-- > 0;) order.emplace_back(scores[i], i);
  count = std::min(count, order.size());
  const auto above = [](const Scored& a, const Scored& b) {
    return a.first > b.first || (a.first == b.first && a.second > b.second);
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), above);
  std::vector<bool> chosen(scores.size(), false);
  for (std::size_t i = 0; i < count; ++i) chosen[order[i].second] = true;
  return chosen;
}

std::vector<bool> select_tokens(const SelectionOptions& options, std::span<const float> deviation,
                                std::span<const float> received) {
  const std::size_t n = deviation.size();
  if (options.all) return std::vector<bool>(n, true);
  if (options.share > 0.0 || options.count >= 0) {
    if (options.score != SelectionOptions::Score::paper) return best_share(options, deviation);
    std::vector<float> scores(n, 0.0f);
    if (options.deviation) raise_to_multiples(scores, deviation, options.deviation_threshold, kRounding);
    if (options.influence && received.size() == n)
      raise_to_multiples(scores, received, options.influence_threshold, 0.0);
    return best_share(options, scores);
  }
  std::vector<bool> chosen(n, false);
  if (options.deviation) add_above(chosen, deviation, options.deviation_threshold, kRounding);
  if (options.influence && received.size() == n) add_above(chosen, received, options.influence_threshold, 0.0);
  std::fill_n(chosen.begin(), std::min(n, static_cast<std::size_t>(std::max(0, options.head))), true);
  std::fill_n(chosen.rbegin(), std::min(n, static_cast<std::size_t>(std::max(0, options.suffix))), true);
  return chosen;
}

std::vector<bool> select_by_entropy(const SelectionOptions& options, std::span<const float> entropy) {
  return best_share(options, entropy);
}

std::vector<bool> select_by_author(const SelectionOptions& options, std::span<const float> entropy,
                                   std::span<const float> received) {
  std::vector<float> scores(std::max(entropy.size(), received.size()), 0.0f);
  for (const std::span<const float> values : {entropy, received}) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (std::size_t i = 0; sum > 0.0 && i < values.size(); ++i) scores[i] += static_cast<float>(values[i] / sum);
  }
  return best_share(options, scores);
}

}  // namespace baton
