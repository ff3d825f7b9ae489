// SPDX-License-Identifier: Apache-2.0
// What the tests of the CPU backends share: seeded values, backends under test, comparison that says where it failed.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/cpu.h"

namespace baton::test {

inline constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

/// A matrix of floats that owns its elements.
struct Values {
  Values(std::int64_t rows_in, std::int64_t cols_in, float fill = 0)
      : rows(rows_in), cols(cols_in), data(static_cast<std::size_t>(rows_in * cols_in), fill) {}

  std::int64_t rows, cols;
  std::vector<float> data;

  float& at(std::int64_t row, std::int64_t col) { return data[static_cast<std::size_t>(row * cols + col)]; }
  float at(std::int64_t row, std::int64_t col) const { return data[static_cast<std::size_t>(row * cols + col)]; }
  TensorView view() { return view_of(data.data(), rows, cols); }
  ConstTensorView view() const { return view_of(data.data(), rows, cols); }
  std::span<const float> row(std::int64_t i) const { return std::span(data).subspan(i * cols, cols); }
};

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}

  /// Uniform integers of [begin, end).
  std::int32_t integer(std::int64_t begin, std::int64_t end) {
    return static_cast<std::int32_t>(begin +
                                     static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(end - begin)));
  }
  float normal() { return normal_(engine_); }
  Values values(std::int64_t rows, std::int64_t cols) {
    Values out(rows, cols);
    for (float& value : out.data) value = normal();
    return out;
  }
  std::vector<float> vector(std::int64_t n) { return values(1, n).data; }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

inline float round_to(float value, DType dtype) {
  return dtype == DType::f32 ? value : bf16_to_f32(f32_to_bf16(value));
}

inline float norm_of(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return static_cast<float>(std::sqrt(sum));
}
inline float largest(std::span<const float> x) {
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  return most;
}

/// The bound of every comparison with a tolerance: a sum of n products x * y in fp32, in any order, is off by about
/// epsilon * sqrt(n) * |x| * |y|; 4 is room for the spread.
inline float sum_tolerance(std::int64_t n, float norm_x, float norm_y) {
  return 4 * kEpsilon * std::sqrt(static_cast<float>(n)) * norm_x * norm_y;
}

/// Fails unless |actual - expected| <= tolerance(row, col) everywhere; says the worst element. NaN fails.
template <class Expected, class Tolerance>
void require_close(const Values& actual, const Expected& expected, const Tolerance& tolerance) {
  double worst = -1;
  std::string where = "none";
  for (std::int64_t row = 0; row < actual.rows; ++row) {
    for (std::int64_t col = 0; col < actual.cols; ++col) {
      const double error = std::abs(static_cast<double>(actual.at(row, col)) - static_cast<double>(expected(row, col)));
      const double share = std::isnan(error) ? 1e300 : error / static_cast<double>(tolerance(row, col));
      if (share <= worst) continue;
      worst = share;
      where = "[" + std::to_string(row) + ", " + std::to_string(col) + "]: got " + std::to_string(actual.at(row, col)) +
              ", expected " + std::to_string(expected(row, col)) + ", error " + std::to_string(error) + " = " +
              std::to_string(share) + " of the tolerance";
    }
  }
  INFO("largest error at " << where);
  REQUIRE(worst <= 1);
}

inline void require_same_bits(std::span<const float> actual, std::span<const float> expected) {
  REQUIRE(actual.size() == expected.size());
  if (std::memcmp(actual.data(), expected.data(), actual.size_bytes()) == 0) {
    SUCCEED();
    return;
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("index " << i << ": " << actual[i] << " and " << expected[i]);
    REQUIRE(std::bit_cast<std::uint32_t>(actual[i]) == std::bit_cast<std::uint32_t>(expected[i]));
  }
}

inline std::unique_ptr<Matrix> load(Backend& backend, const Values& values, DType dtype,
                                    Activations activations = Activations::f32) {
  const ConstTensorView parts[] = {values.view()};
  return backend.load_matrix(parts, dtype, activations);
}

/// cos and sin of random angles, [T, half].
inline std::pair<Values, Values> random_angles(Random& random, std::int64_t rows, std::int64_t half) {
  Values cos(rows, half), sin(rows, half);
  for (std::size_t i = 0; i < cos.data.size(); ++i) {
    const double angle = static_cast<double>(random.normal()) * 10;
    cos.data[i] = static_cast<float>(std::cos(angle));
    sin.data[i] = static_cast<float>(std::sin(angle));
  }
  return {cos, sin};
}

inline Values multiply(Backend& backend, const Values& x, const Matrix& w, std::span<const float> bias) {
  Values out(x.rows, w.rows, std::nanf(""));
  backend.matmul(out.view(), x.view(), w, bias);
  return out;
}

inline constexpr DType kStored[] = {DType::bf16, DType::f32};
inline constexpr std::int64_t kSizes[] = {1, 31, 32, 33, 63, 64, 65};

}  // namespace baton::test
