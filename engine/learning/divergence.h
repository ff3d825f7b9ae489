// SPDX-License-Identifier: Apache-2.0
// How far one distribution of the next token is from another.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace baton {

/// log softmax.
inline std::vector<float> log_probabilities(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(value - most);
  std::vector<float> result(logits.begin(), logits.end());
  for (float& value : result) value = static_cast<float>(value - most - std::log(sum));
  return result;
}

/// KL(p || q) of log probabilities of equal number, in nats.
inline double divergence(std::span<const float> p, std::span<const float> q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(static_cast<double>(p[i])) * (p[i] - q[i]);
  return std::max(sum, 0.0);
}

}  // namespace baton
