// SPDX-License-Identifier: Apache-2.0
// LinearFit against maps that are known, and what it leaves of ones that are not linear.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "engine/tensor/tensor.h"
#include "sdk/lab/correction_learner.h"

namespace baton {

using namespace lab;

namespace {

const KvWidth kShape{{4, 4, 4}}, kUneven{{4, 0, 8}};  // 24 inputs, 16 outputs

struct Text {
  std::vector<std::uint16_t> base, truth;
};

/// Texts whose change in layers 1 and 2 is a map of `rank` of the base, plus noise.
class World {
 public:
  World(int rank, float noise, KvWidth shape = kShape)
      : shape_(std::move(shape)),
        noise_(noise),
        a_(24 * static_cast<std::size_t>(rank)),
        b_(16 * static_cast<std::size_t>(rank)),
        rank_(rank) {
    for (float& value : a_) value = normal_(random_) * 0.3f;
    for (float& value : b_) value = normal_(random_) * 0.3f;
  }
  Text text(int n) {
    Text text{std::vector<std::uint16_t>(static_cast<std::size_t>(24 * n)), {}};
    for (auto& bits : text.base) bits = f32_to_bf16(normal_(random_) + 0.5f);
    text.truth = text.base;
    for (int i = 0; i < n; ++i) {
      for (int out = 0; out < 16; ++out) {
        float change = 0.25f + noise_ * normal_(random_);
        for (int r = 0; r < rank_; ++r) {
          float code = 0.0f;
          for (int in = 0; in < 24; ++in)
            code += a_[static_cast<std::size_t>(r * 24 + in)] * value(text.base, n, i, in);
          change += b_[static_cast<std::size_t>(out * rank_ + r)] * code;
        }
        std::uint16_t& bits = text.truth[at(n, i, out + 8)];
        bits = f32_to_bf16(bf16_to_f32(bits) + change);
      }
    }
    return text;
  }
  std::size_t at(int n, int token, int column) const {
    int layer = 0;
    while (2 * shape_.before(layer + 1) <= column) ++layer;
    const auto before = static_cast<int>(2 * shape_.before(layer)), width = static_cast<int>(2 * shape_.layer(layer));
    return static_cast<std::size_t>(before * n + token * width + column - before);
  }
  float value(const std::vector<std::uint16_t>& kv, int n, int token, int column) const {
    return bf16_to_f32(kv[at(n, token, column)]);
  }

 private:
  KvWidth shape_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  float noise_;
  std::vector<float> a_, b_;
  int rank_;
};

float left_of(const LinearCorrection& correction, World& world, int texts) {
  double all = 0.0, left = 0.0;
  for (int t = 0; t < texts; ++t) {
    const Text text = world.text(20);
    const std::vector<float> change = apply(correction, text.base, 20);
    for (int i = 0; i < 20; ++i) {
      for (int out = 0; out < 16; ++out) {
        const double truth = world.value(text.truth, 20, i, out + 8) - world.value(text.base, 20, i, out + 8);
        all += truth * truth;
        left += std::pow(truth - change[static_cast<std::size_t>(i * 16 + out)], 2);
      }
    }
  }
  return static_cast<float>(left / all);
}

TEST_CASE("linear fit: a map of low rank is found again, with all tokens and with some of them", "[learn]") {
  for (const bool covariance : {true, false}) {
    const KvWidth shape = GENERATE(kShape, kUneven);
    World world(3, 0.0f, shape);
    LinearFitOptions options;
    options.rank = 3;
    if (!covariance) options.max_inputs = 1, options.max_tokens = 200;
    LinearFit fit(shape, options);
    CHECK(fit.fit() == nullptr);
    for (int t = 0; t < 40; ++t) {
      const Text text = world.text(20);
      fit.add(text.base, text.truth, 20);
    }
    const auto correction = fit.fit();
    REQUIRE(correction);
    CHECK(correction->rank == 3);
    CHECK(correction->texts == 40);
    const float left = left_of(*correction, world, 10);
    INFO(covariance << ' ' << left);
    CHECK(left < 2e-4f);  // of bf16: of the map, and of the changed values
    CHECK(correction->left == Approx(left).margin(2e-4));
  }
}

TEST_CASE("linear fit: a rank too low leaves what the other directions carry, noise stays", "[learn]") {
  World world(6, 0.0f);
  std::vector<float> left;
  for (const int rank : {1, 3, 6, 0}) {
    World same(6, 0.0f);
    LinearFit fit(kShape, {rank});
    for (int t = 0; t < 40; ++t) {
      const Text text = same.text(20);
      fit.add(text.base, text.truth, 20);
    }
    left.push_back(left_of(*fit.fit(), same, 10));
  }
  CHECK(left[0] > left[1]);
  CHECK(left[1] > 10 * left[2]);
  CHECK(left[2] < 2e-4f);
  CHECK(left[3] < 2e-4f);

  World noisy(2, 0.5f);
  LinearFit fit(kShape);
  for (int t = 0; t < 60; ++t) {
    const Text text = noisy.text(20);
    fit.add(text.base, text.truth, 20);
  }
  const auto correction = fit.fit();
  const float measured = left_of(*correction, noisy, 20);
  CHECK(measured > 0.05f);
  CHECK(correction->left == Approx(measured).epsilon(0.2));  // what it says is what others see
}

TEST_CASE("linear fit: texts of another shape are refused", "[learn]") {
  LinearFit fit(kShape);
  const std::vector<std::uint16_t> kv(24 * 5, 0), shorter(24 * 4, 0);
  CHECK_THROWS_AS(fit.add(kv, shorter, 5), std::invalid_argument);
  CHECK_THROWS_AS(fit.add(kv, kv, 4), std::invalid_argument);
  CHECK_THROWS_AS(fit.add({}, {}, 0), std::invalid_argument);
  CHECK_THROWS_AS(LinearFit(KvWidth{{4}}), std::invalid_argument);
  CHECK_THROWS_AS(LinearFit(KvWidth{{4, 0}}), std::invalid_argument);
  fit.add(kv, kv, 5);  // no change at all: nothing to learn, nothing that is not finite
  fit.add(kv, kv, 5);
  const auto correction = fit.fit();
  REQUIRE(correction);
  for (const float change : apply(*correction, kv, 5)) CHECK(change == 0.0f);
}

}  // namespace
}  // namespace baton
