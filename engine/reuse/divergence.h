// SPDX-License-Identifier: Apache-2.0
// The divergence of two distributions of the next token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace baton {

/// Returns the log softmax of logits [V].
inline std::vector<float> log_probabilities(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(value - most);
  std::vector<float> result(logits.begin(), logits.end());
  for (float& value : result) value = static_cast<float>(value - most - std::log(sum));
  return result;
}

/// Returns KL(p || q) in nats, from log probabilities [V] of each.
inline double divergence(std::span<const float> p, std::span<const float> q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(static_cast<double>(p[i])) * (p[i] - q[i]);
  return std::max(sum, 0.0);
}

}  // namespace baton
