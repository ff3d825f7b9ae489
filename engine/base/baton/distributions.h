// SPDX-License-Identifier: Apache-2.0
// Comparing distributions of the next token, from the logits that RunOptions::on_logits gives.
#pragma once

#include <cstddef>
#include <span>

namespace baton::inline v1 {

/// Returns the logarithm of the sum of exp(logit) over logits [V] in double: logit - log_sum_exp is the logarithm of a
/// token's probability, in nats. V is at least 1, and a logit is a number. Threads: any.
double log_sum_exp(std::span<const float> logits);

/// Returns the index of the largest of logits [V], which is the id of the likeliest token; the first of equal ones. V
/// is at least 1, and a logit is a number. Threads: any.
std::size_t likeliest(std::span<const float> logits);

/// Returns KL(p || q) in nats, at least 0, of the distributions that logits p and q, both [V], give. The sums are those
/// of log_sum_exp. Threads: any.
double divergence(std::span<const float> p, double p_sum, std::span<const float> q, double q_sum);

/// The same, for callers that do not have the sums.
inline double divergence(std::span<const float> p, std::span<const float> q) {
  return divergence(p, log_sum_exp(p), q, log_sum_exp(q));
}

}  // namespace baton::inline v1
