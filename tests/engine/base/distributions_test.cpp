// SPDX-License-Identifier: Apache-2.0
#include <baton/distributions.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace baton::test::distributions_test {
namespace {

std::vector<float> logits_of(std::mt19937& random, std::size_t count, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

long double exact_sum(const std::vector<float>& logits) {
  const long double most = *std::ranges::max_element(logits);
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - most);
  return most + std::log(sum);
}

long double exact_divergence(const std::vector<float>& p, const std::vector<float>& q) {
  const long double p_sum = exact_sum(p), q_sum = exact_sum(q);
  long double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  return kl;
}

TEST_CASE("divergence agrees with extended precision at any size of a vocabulary") {
  std::mt19937 random(71);
  for (const std::size_t count : {1, 2, 7, 8, 9, 15, 16, 1000, 49152, 151936}) {
    for (const float deviation : {0.01f, 1.0f, 8.0f, 200.0f}) {
      const std::vector<float> p = logits_of(random, count, deviation);
      for (const float change : {1e-3f, 1.0f}) {
        std::vector<float> q = p;
        std::ranges::transform(p, logits_of(random, count, change), q.begin(), std::plus());
        INFO(count << " logits, deviation " << deviation << ", change " << change);
        CHECK(log_sum_exp(p) == Approx(static_cast<double>(exact_sum(p))).epsilon(1e-13).margin(1e-13));
        CHECK(divergence(p, q) == Approx(static_cast<double>(exact_divergence(p, q))).epsilon(1e-9).margin(1e-11));
      }
      CHECK(divergence(p, p) == 0.0);
      CHECK(likeliest(p) == static_cast<std::size_t>(std::ranges::max_element(p) - p.begin()));
    }
  }
}

TEST_CASE("the likeliest of equal logits is the first") {
  for (const std::size_t count : {1, 5, 64, 1000}) {
    std::vector<float> logits(count, -3.0f);
    CHECK(likeliest(logits) == 0);
    for (std::size_t first = 0; first < count; first += 1 + count / 7) {
      logits.assign(count, -INFINITY);
      logits[first] = logits.back() = -2.0f;
      CHECK(likeliest(logits) == first);
    }
  }
}

TEST_CASE("the divergence of distributions that share no token is their distance in nats") {
  const std::vector<float> p = {0.0f, -800.0f}, q = {-800.0f, 0.0f};
  CHECK(divergence(p, q) == Approx(800.0));
}

}  // namespace
}  // namespace baton::test::distributions_test
