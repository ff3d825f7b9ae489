#include "engine/reuse/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton {
namespace {

constexpr float kRounding = 1e-6f;  // a deviation of equal values that were rounded differently on their way

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

/// Deviation times the attention received per token that could see it: how much a wrong value will be looked at.
std::vector<double> product_scores(const SelectionInput& input) {
  std::vector<double> scores(input.deviation.begin(), input.deviation.end());
  if (input.received.empty()) return scores;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double observers = input.observers.empty() ? 1.0 : std::max(1.0f, input.observers[i]);
    scores[i] *= std::sqrt(input.received[i] / observers);
  }
  return scores;
}

}  // namespace

std::vector<bool> largest(std::span<const double> scores, std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a > b; });
  std::vector<bool> chosen(scores.size(), false);
  for (std::size_t i = 0; i < count; ++i) chosen[order[i]] = true;
  return chosen;
}

std::vector<bool> select_tokens(const SelectionOptions& options, const SelectionInput& input) {
  const std::size_t n = input.deviation.size();
  if (options.all) return std::vector<bool>(n, true);
  const auto suffix = std::min(n, static_cast<std::size_t>(std::max(0, options.suffix)));
  const auto head = std::min(n, static_cast<std::size_t>(std::max(0, options.head)));
  if (options.share > 0.0) {
    std::vector<double> scores = options.score == SelectionOptions::Score::product
                                     ? product_scores(input)
                                     : std::vector<double>(input.deviation.begin(), input.deviation.end());
    const auto count = static_cast<std::size_t>(std::ceil(options.share * static_cast<double>(n)));
    // Both ends are part of the budget, the head first.
    for (std::size_t i = n - std::min(suffix, count); i < n; ++i) scores[i] = 1e30;
    for (std::size_t i = 0; i < std::min(head, count); ++i) scores[i] = HUGE_VAL;
    return largest(scores, count);
  }
  std::vector<bool> chosen(n, false);
  if (options.deviation) add_above(chosen, input.deviation, options.deviation_threshold, kRounding);
  if (options.influence && input.received.size() == n)
    add_above(chosen, input.received, options.influence_threshold, 0.0);
  std::fill_n(chosen.begin(), head, true);
  for (std::size_t i = n - suffix; i < n; ++i) chosen[i] = true;
  return chosen;
}

}  // namespace baton
