// SPDX-License-Identifier: Apache-2.0
// Operations that work row by row: norms, residual, gate, rotation, gather and scatter.
#include <functional>
#include <numbers>

#include "engine/tensor/tensor.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::rows_test {
namespace {

RopeAngles angles_of(const Values& cos, const Values& sin) { return {cos.view(), sin.view()}; }

TEST_CASE("rows by hand") {
  for_each_backend([](Backend& backend) {
    Values x(1, 2), out(1, 2), delta(1, 2);
    x.data = {3, 4};
    delta.data = {-2, 4};
    const std::vector<float> weight = {1, 10};
    backend.rms_norm(out.view(), x.view(), weight, 0);  // root mean square: sqrt(12.5)
    REQUIRE(out.at(0, 0) == Approx(3 / std::sqrt(12.5)));
    REQUIRE(out.at(0, 1) == Approx(40 / std::sqrt(12.5)));
    backend.rms_norm(out.view(), x.view(), weight, 37.5f);  // sqrt(12.5 + 37.5)
    REQUIRE(out.at(0, 0) == Approx(3 / std::sqrt(50.0)));

    backend.add_rms_norm(out.view(), x.view(), delta.view(), weight, 0);
    REQUIRE(x.data == std::vector<float>{1, 8});
    REQUIRE(out.at(0, 1) == Approx(80 / std::sqrt(32.5)));

    backend.add(x.view(), delta.view());
    REQUIRE(x.data == std::vector<float>{-1, 12});

    Values gate_up(1, 4);
    gate_up.data = {0, std::log(3.0f), 5, 8};  // silu(log 3) = log 3 * 3 / 4
    backend.silu_mul(out.view(), gate_up.view());
    REQUIRE(out.at(0, 0) == 0);
    REQUIRE(out.at(0, 1) == Approx(std::log(3.0) * 6));

    backend.gelu_mul(out.view(), gate_up.view());
    REQUIRE(out.at(0, 0) == 0);
    REQUIRE(out.at(0, 1) == Approx(0.9490497 * 8).epsilon(1e-5));  // gelu(log 3), tanh form

    const ClampedGate clamped{6, 2};
    gate_up.data = {-std::log(3.0f), 20, -50, 3};  // 1 / (1 + exp(2 log 3)) = 1 / 10; the gate becomes 6, up -6
    backend.silu_mul(out.view(), gate_up.view(), clamped);
    REQUIRE(out.at(0, 0) == Approx(std::log(3.0) * 0.5));
    REQUIRE(out.at(0, 1) == Approx(6 / (1 + std::exp(-12.0)) * 4));

    backend.scale(x.view(), 0.5f);
    REQUIRE(x.data == std::vector<float>{-0.5f, 6});
    Values capped(1, 3);
    capped.data = {0, 30, -1e30f};
    backend.soft_cap(capped.view(), 30);
    REQUIRE(capped.at(0, 0) == 0);
    REQUIRE(capped.at(0, 1) == Approx(30 * std::tanh(1.0)));
    REQUIRE(capped.at(0, 2) == -30);

    Values heads(1, 4);
    heads.data = {3, 4, 0, 2};
    backend.head_rms_norm(heads.view(), std::vector<float>{1, 1}, 0);
    REQUIRE(heads.at(0, 0) == Approx(3 / std::sqrt(12.5)));
    REQUIRE(heads.at(0, 3) == Approx(2 / std::sqrt(2.0)));

    Values turned(1, 8), cos(1, 1, 0), sin(1, 1, 1);  // a quarter turn of the pair (0, 1) in heads of 4
    turned.data = {1, 2, 3, 4, 5, 6, 7, 8};
    backend.rope(turned.view(), 4, angles_of(cos, sin));
    REQUIRE(turned.data == std::vector<float>{-2, 1, 3, 4, -6, 5, 7, 8});
  });
}

TEST_CASE("silu and gelu of extreme gates") {
  for_each_backend([](Backend& backend) {
    Values gate_up(1, 40, 1), out(1, 20);
    for (int i = 0; i < 20; ++i) gate_up.at(0, i) = i % 2 == 0 ? 200.0f + static_cast<float>(i) : -200.0f;
    const auto is_the_gate_or_nothing = [&] {
      for (int i = 0; i < 20; ++i) {
        if (i % 2 == 0) REQUIRE(out.at(0, i) == gate_up.at(0, i));
        if (i % 2 == 1) REQUIRE(std::abs(out.at(0, i)) < 1e-30f);
      }
    };
    backend.silu_mul(out.view(), gate_up.view());
    is_the_gate_or_nothing();
    backend.gelu_mul(out.view(), gate_up.view());
    is_the_gate_or_nothing();
    for (int i = 0; i < 20; ++i) gate_up.at(0, 20 + i) = 1e30f;
    backend.silu_mul(out.view(), gate_up.view(), {150, 1});
    for (int i = 0; i < 20; ++i) REQUIRE((i % 2 == 0 ? out.at(0, i) == 151.0f * 150 : std::abs(out.at(0, i)) < 1e-30f));
    for (int i = 0; i < 20; ++i) gate_up.at(0, 20 + i) = 1;
    for (int i = 0; i < 20; ++i) gate_up.at(0, i) = i % 2 == 0 ? 3e18f : -1e15f;  // the cubes leave f32 or nearly do
    backend.gelu_mul(out.view(), gate_up.view());
    for (int i = 0; i < 20; ++i) REQUIRE((i % 2 == 0 ? out.at(0, i) == 3e18f : std::abs(out.at(0, i)) < 1e-20f));
  });
}

TEST_CASE("row operations agree with double") {
  Random random(20);
  for_each_backend([&](Backend& backend) {
    for (const std::int64_t rows : {1, 5, 64}) {
      for (const std::int64_t cols : kSizes) {
        INFO("T " << rows << " C " << cols);
        const Values x = random.values(rows, cols);
        const Values delta = random.values(rows, cols);
        const std::vector<float> weight = random.vector(cols);
        const auto normed = [&](const Values& in) {
          return [&](std::int64_t t, std::int64_t c) {
            const double square = std::pow(static_cast<double>(norm_of(in.row(t))), 2) / static_cast<double>(cols);
            return in.at(t, c) / std::sqrt(square + 1e-3) * weight[c];
          };
        };
        // The mean of squares has the relative error of a sum of n positive products, the scale half of it.
        const auto norm_tolerance = [&](std::int64_t, std::int64_t c) {
          return sum_tolerance(cols, 1, 1) * std::sqrt(static_cast<float>(cols)) * std::abs(weight[c]);
        };
        Values out(rows, cols);
        backend.rms_norm(out.view(), x.view(), weight, 1e-3f);
        require_close(out, normed(x), norm_tolerance);

        Values sum = x;
        backend.add_rms_norm(out.view(), sum.view(), delta.view(), weight, 1e-3f);
        for (std::size_t i = 0; i < sum.data.size(); ++i) REQUIRE(sum.data[i] == x.data[i] + delta.data[i]);
        require_close(out, normed(sum), [&](auto t, auto c) { return 4 * norm_tolerance(t, c); });

        const Values gate_up = random.values(rows, 2 * cols);
        backend.silu_mul(out.view(), gate_up.view());
        require_close(
            out,
            [&](std::int64_t t, std::int64_t c) {
              const double gate = gate_up.at(t, c);
              return gate / (1 + std::exp(-gate)) * gate_up.at(t, c + cols);
            },
            [&](std::int64_t t, std::int64_t c) {
              return sum_tolerance(1, std::abs(gate_up.at(t, c)), std::abs(gate_up.at(t, c + cols))) + 1e-30f;
            });
        backend.gelu_mul(out.view(), gate_up.view());
        require_close(
            out,
            [&](std::int64_t t, std::int64_t c) {
              const double g = gate_up.at(t, c);
              const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
              return 0.5 * g * (1 + std::tanh(inner)) * gate_up.at(t, c + cols);
            },
            [&](std::int64_t t, std::int64_t c) {
              return sum_tolerance(2, std::abs(gate_up.at(t, c)), std::abs(gate_up.at(t, c + cols))) + 1e-30f;
            });
        backend.silu_mul(out.view(), gate_up.view(), {0.75f, 1.702f});
        require_close(
            out,
            [&](std::int64_t t, std::int64_t c) {
              const double g = std::min(gate_up.at(t, c), 0.75f);
              const double up = std::clamp(gate_up.at(t, c + cols), -0.75f, 0.75f);
              return (up + 1) * g / (1 + std::exp(-1.702 * g));
            },
            [&](std::int64_t t, std::int64_t c) { return sum_tolerance(2, std::abs(gate_up.at(t, c)), 2) + 1e-30f; });
        Values changed = x;
        backend.scale(changed.view(), 25.3f);
        for (std::size_t i = 0; i < x.data.size(); ++i) REQUIRE(changed.data[i] == x.data[i] * 25.3f);
        changed = x;
        backend.soft_cap(changed.view(), 0.7f);
        require_close(
            changed,
            [&](std::int64_t t, std::int64_t c) { return 0.7f * std::tanh(static_cast<double>(x.at(t, c)) / 0.7f); },
            [](auto, auto) { return sum_tolerance(2, 1, 1); });
      }
    }
  });
}

TEST_CASE("operands: outputs in the type that products take are the outputs in f32, rounded") {
  Random random(24);
  for_each_backend([&](Backend& backend) {
    if (backend.operand_type(DType::bf16) != DType::bf16) return;
    for (const std::int64_t cols : {1, 31, 64, 100}) {
      const std::int64_t rows = 5;
      const Values x = random.values(rows, cols), delta = random.values(rows, cols),
                   gate_up = random.values(rows, 2 * cols);
      const std::vector<float> weight = random.vector(cols);
      const auto compare = [&](const std::function<void(TensorView)>& op) {
        Values full(rows, cols);
        op(full.view());
        std::vector<std::uint16_t> half(static_cast<std::size_t>(rows * cols));
        op({reinterpret_cast<std::byte*>(half.data()), DType::bf16, rows, cols, cols});
        for (std::size_t i = 0; i < half.size(); ++i) REQUIRE(half[i] == f32_to_bf16(full.data[i]));
        return full;
      };
      compare([&](TensorView out) { backend.rms_norm(out, x.view(), weight, 1e-5f); });
      compare([&](TensorView out) {
        Values sum = x;
        backend.add_rms_norm(out, sum.view(), delta.view(), weight, 1e-5f);
      });
      compare([&](TensorView out) { backend.silu_mul(out, gate_up.view()); });
      compare([&](TensorView out) { backend.gelu_mul(out, gate_up.view()); });
      compare([&](TensorView out) { backend.silu_mul(out, gate_up.view(), {1.0f, 1.702f}); });

      const auto w = load(backend, random.values(9, cols), DType::bf16);
      std::vector<std::uint16_t> rounded;
      for (const float value : x.data) rounded.push_back(f32_to_bf16(value));
      Values expected(rows, 9), actual(rows, 9);
      backend.matmul(expected.view(), x.view(), *w, {});
      backend.matmul(
          actual.view(),
          BasicView<const std::byte>{reinterpret_cast<const std::byte*>(rounded.data()), DType::bf16, rows, cols, cols},
          *w, {});
      require_same_bits(actual.data, expected.data);
    }
  });
}

TEST_CASE("gates in the type that their product may have are the gates in f32, rounded") {
  Random random(25);
  for_each_backend([&](Backend& backend) {
    if (backend.gate_type(DType::bf16) != DType::bf16) return;
    for (const std::int64_t cols : {1, 31, 64, 100}) {
      for (const std::int64_t rows : {1, 5, 12}) {
        INFO("T " << rows << " F " << cols);
        const Values x = random.values(rows, 40);
        const auto w = load(backend, random.values(2 * cols, 40), DType::bf16);
        Values full(rows, 2 * cols), rounded(rows, 2 * cols);
        std::vector<std::uint16_t> bits(rounded.data.size());
        const TensorView half{reinterpret_cast<std::byte*>(bits.data()), DType::bf16, rows, 2 * cols, 2 * cols};
        backend.matmul(full.view(), x.view(), *w, {});
        backend.matmul(half, x.view(), *w, {});
        for (std::size_t i = 0; i < bits.size(); ++i) rounded.data[i] = bf16_to_f32(bits[i]);
        require_close(
            rounded, [&](std::int64_t t, std::int64_t n) { return full.at(t, n); },
            [&](std::int64_t t, std::int64_t n) { return kBf16Rounding * std::abs(full.at(t, n)) + 1e-5f; });

        Values expected(rows, cols), actual(rows, cols);
        backend.silu_mul(expected.view(), rounded.view());
        backend.silu_mul(actual.view(), half);
        require_same_bits(actual.data, expected.data);
        backend.gelu_mul(expected.view(), rounded.view());
        backend.gelu_mul(actual.view(), half);
        require_same_bits(actual.data, expected.data);
        backend.silu_mul(expected.view(), rounded.view(), {1.0f, 1.702f});
        backend.silu_mul(actual.view(), half, {1.0f, 1.702f});
        require_same_bits(actual.data, expected.data);
      }
    }
  });
}

TEST_CASE("rope turns pairs of every width, and only the rotated part") {
  Random random(21);
  for_each_backend([&](Backend& backend) {
    const std::pair<int, int> widths[] = {{8, 4}, {48, 24}, {80, 40}, {64, 32}, {64, 16}, {128, 64}, {62, 31}, {64, 0}};
    for (const auto& [width, half] : widths) {
      INFO("D " << width << " R " << 2 * half);
      const std::int64_t rows = 7, heads = 3;
      const auto [cos, sin] = random_angles(random, rows, half);
      const Values before = random.values(rows, heads * width);
      Values x = before;
      backend.rope(x.view(), width, angles_of(cos, sin));
      require_close(
          x,
          [&, w = width, h = half, &c = cos, &s = sin](std::int64_t t, std::int64_t col) -> double {
            const std::int64_t j = col % w;
            if (j >= 2 * h) return before.at(t, col);
            const bool first = j < h;
            const double a = before.at(t, col), b = before.at(t, first ? col + h : col - h);
            const double angle_sin = s.at(t, first ? j : j - h);
            return a * static_cast<double>(c.at(t, first ? j : j - h)) + (first ? -b : b) * angle_sin;
          },
          [](auto, auto) { return sum_tolerance(2, 4, 1); });
    }
  });
}

TEST_CASE("residual streams: one row by hand") {
  for_each_backend([](Backend& backend) {
    Values x(1, 4), in(1, 4), weight(1, 4), out(1, 4);  // two streams of two columns
    x.data = {1, 2, 3, 4};
    in.data = {10, 20, 30, 40};
    weight.data = {1, 0.5f, -1, 2};
    backend.streams().mix(out.view(), x.view(), in.view(), weight.view(), 2);
    REQUIRE(out.data == std::vector<float>{26, 42, 53, 64});

    Values news(1, 2), factor(1, 2);
    news.data = {5, 5};
    factor.data = {2, 10};
    backend.streams().correct(out.view(), x.view(), news.view(), factor.view(), 1);  // 5 - 3, 5 - 4
    REQUIRE(out.data == std::vector<float>{5, 4, 23, 14});

    Values like(1, 2), small(1, 2);
    like.data = {6, 8};
    news.data = {0, -5};
    backend.streams().match_rms(news.view(), like.view(), 1e-5f);  // mean squares of 50 and 12.5
    REQUIRE(news.at(0, 0) == 0);
    REQUIRE(news.at(0, 1) == Approx(-10));
    small.data = {1e-4f, 0};
    backend.streams().match_rms(small.view(), like.view(), 0.5f);  // too small: sqrt(50 / 0.5)
    REQUIRE(small.at(0, 0) == Approx(1e-3));

    Values gates(1, 4);
    gates.data = {-1, 1, -1, 3};  // a mean of 0.5, a deviation of sqrt(2.75)
    backend.streams().keep_peaks(gates.view(), 1);
    REQUIRE(gates.at(0, 1) == 0);
    REQUIRE(gates.at(0, 3) == Approx(2.5 - std::sqrt(2.75)));
    gates.data = {7, 7, 7, 7};
    backend.streams().keep_peaks(gates.view(), 0.5f);
    REQUIRE(gates.data == std::vector<float>(4, 0));

    Values scaled(1, 2);
    backend.streams().scale_columns(scaled.view(), like.view(), std::vector<float>{2, -1});
    REQUIRE(scaled.data == std::vector<float>{12, -8});
  });
}

TEST_CASE("residual streams of random rows, of every width, are those of sums in double") {
  Random random(26);
  for_each_backend([&](Backend& backend) {
    for (const std::int64_t cols : kSizes) {
      for (const auto& [streams, sources] : {std::pair(4, 4), {1, 4}, {3, 2}}) {
        INFO("C " << cols << ", " << streams << " streams of " << sources);
        const std::int64_t rows = 5;
        const Values x = random.values(rows, streams * cols), in = random.values(rows, sources * cols),
                     weight = random.values(rows, streams * sources), news = random.values(rows, cols);
        Values out(rows, streams * cols);
        backend.streams().mix(out.view(), x.view(), in.view(), weight.view(), cols);
        const auto sum_at = [&, sources = sources](std::int64_t t, std::int64_t at, bool magnitude) {
          double sum = magnitude ? std::abs(x.at(t, at)) : x.at(t, at);
          for (std::int64_t i = 0; i < sources; ++i) {
            const double part =
                static_cast<double>(weight.at(t, at / cols * sources + i)) * in.at(t, i * cols + at % cols);
            sum += magnitude ? std::abs(part) : part;
          }
          return sum;
        };
        require_close(
            out, [&](std::int64_t t, std::int64_t at) { return sum_at(t, at, false); },
            [&](std::int64_t t, std::int64_t at) {
              return static_cast<float>(8 * kEpsilon * sum_at(t, at, true)) + 1e-30f;
            });
        const std::int32_t active = streams - 1;
        const Values factor = random.values(rows, streams);
        backend.streams().correct(out.view(), x.view(), news.view(), factor.view(), active);
        require_close(
            out,
            [&](std::int64_t t, std::int64_t at) {
              const double change = static_cast<double>(news.at(t, at % cols)) - x.at(t, active * cols + at % cols);
              return x.at(t, at) + factor.at(t, at / cols) * change;
            },
            [&](std::int64_t t, std::int64_t at) {
              const float change = std::abs(news.at(t, at % cols)) + std::abs(x.at(t, active * cols + at % cols));
              return 4 * kEpsilon * (std::abs(x.at(t, at)) + std::abs(factor.at(t, at / cols)) * change) + 1e-30f;
            });
      }
      const Values like = random.values(5, cols);
      const auto moments = [&](const Values& values, std::int64_t t) {
        double mean = 0, square = 0;
        for (const float value : values.row(t)) {
          mean += value / static_cast<double>(cols);
          square += static_cast<double>(value) * value / static_cast<double>(cols);
        }
        return std::pair(mean, square);
      };
      const Values before = random.values(5, cols);
      Values changed = before;
      backend.streams().match_rms(changed.view(), like.view(), 1e-5f);
      const auto near = [&](auto, auto) { return 32 * kEpsilon * 8.0f; };
      require_close(
          changed,
          [&](std::int64_t t, std::int64_t c) {
            return before.at(t, c) * std::sqrt(moments(like, t).second / std::max(moments(before, t).second, 1e-5));
          },
          [&](std::int64_t t, std::int64_t c) { return 32 * kEpsilon * std::abs(changed.at(t, c)) + 1e-30f; });
      changed = before;
      backend.streams().keep_peaks(changed.view(), 0.7f);
      require_close(
          changed,
          [&](std::int64_t t, std::int64_t c) {
            const auto [mean, square] = moments(before, t);
            return std::max(before.at(t, c) - (mean + 0.7f * std::sqrt(std::max(square - mean * mean, 0.0))), 0.0);
          },
          near);
    }
  });
}

TEST_CASE("weighted rows are added to the rows of their indices") {
  Random random(23);
  for_each_backend([&](Backend& backend) {
    for (const std::int64_t cols : kSizes) {
      const Values x = random.values(7, cols), in = random.values(3, cols);
      const std::vector<std::int32_t> index = {5, 0, 3};
      const std::vector<float> weight = {0.25f, -3.0f, 0.7f};
      Values sum = x;
      backend.add_weighted_rows(sum.view(), in.view(), index, weight);
      for (std::int64_t c = 0; c < cols; ++c) {
        for (std::size_t i = 0; i < index.size(); ++i) {
          const float before = x.at(index[i], c), added = in.at(static_cast<std::int64_t>(i), c);
          const float exact =
              fused(weight[i], added, before);  // where the target has no such instruction: two roundings
          REQUIRE(std::abs(sum.at(index[i], c) - exact) <= kEpsilon * (std::abs(weight[i] * added) + std::abs(exact)));
        }
        for (const int untouched : {1, 2, 4, 6}) REQUIRE(sum.at(untouched, c) == x.at(untouched, c));
      }
    }
  });
}

TEST_CASE("gather and scatter move whole rows") {
  Random random(22);
  for_each_backend([&](Backend& backend) {
    const Values x = random.values(9, 33);
    const std::vector<std::int32_t> index = {8, 0, 3, 3};
    Values picked(4, 33);
    backend.gather_rows(picked.view(), x.view(), index);
    for (int i = 0; i < 4; ++i) require_same_bits(picked.row(i), x.row(index[i]));
    Values target(9, 33, -1);
    TensorView distinct = picked.view();
    distinct.rows = 3;
    backend.scatter_rows(target.view(), distinct, std::span(index).first(3));
    require_same_bits(target.row(8), x.row(8));
    require_same_bits(target.row(0), x.row(0));
    require_same_bits(target.row(3), x.row(3));
    for (const int untouched : {1, 2, 4, 5, 6, 7}) REQUIRE(target.at(untouched, 5) == -1);
  });
}

}  // namespace
}  // namespace baton::test::rows_test
