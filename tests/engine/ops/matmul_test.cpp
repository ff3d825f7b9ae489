// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/host_operations.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::matmul_test {
namespace {

TEST_CASE("matmul by hand") {
  for_each_backend([](Backend& backend) {
    Values w(3, 2);
    w.data = {1, 2, 3, 4, 5, 6};  // three outputs of two inputs
    Values x(2, 2);
    x.data = {1, 10, -1, 0.5};
    const std::vector<float> bias = {100, 0, -100};
    for (const DType dtype : kStored) {
      const auto matrix = load(backend, w, dtype);
      REQUIRE(multiply(backend, x, *matrix, {}).data == std::vector<float>{21, 43, 65, 0, -1, -2});
      REQUIRE(multiply(backend, x, *matrix, bias).data == std::vector<float>{121, 43, -35, 100, -1, -102});
    }
  });
}

TEST_CASE("matmul agrees with a dense product in double") {
  Random random(1);
  for_each_subject([&](Backend& backend, const Subject& subject, const Way&) {
    const std::pair<DType, Activations> types[] = {
        {DType::bf16, Activations::f32}, {DType::f32, Activations::f32}, {DType::bf16, Activations::bf16}};
    for (const auto& [dtype, activations] : types) {
      for (const std::int64_t depth : {1, 33, 300}) {
        const Values w = random.values(17, depth);
        Values x = random.values(5, depth);
        const std::vector<float> bias = random.vector(17);
        const Values out = multiply(backend, x, *load(backend, w, dtype, activations), bias);
        for (float& value : x.data) value = activations == Activations::bf16 ? round_to(value, DType::bf16) : value;
        const auto exact = [&](std::int64_t t, std::int64_t n) {
          double sum = bias[n];
          for (std::int64_t c = 0; c < depth; ++c) {
            sum += static_cast<double>(x.at(t, c)) * static_cast<double>(round_to(w.at(n, c), dtype));
          }
          return sum;
        };
        require_close(out, exact, [&](std::int64_t t, std::int64_t n) {
          const float norms = norm_of(x.row(t)) * norm_of(w.row(n));
          return sum_tolerance(depth + 1, norm_of(x.row(t)), norm_of(w.row(n))) + kEpsilon * std::abs(bias[n]) +
                 subject.matmul_rounding(dtype) * norms;
        });
      }
    }
  });
}

TEST_CASE("matmul reads and writes columns of wider matrices") {
  Random random(4);
  for_each_backend([&](Backend& backend) {
    const Values w = random.values(40, 50);
    const auto matrix = load(backend, w, DType::bf16);
    for (const std::int64_t rows : {1, 4, 30}) {
      const Values all = random.values(rows, 80);
      Values x(rows, 50);
      for (std::int64_t t = 0; t < rows; ++t) std::copy_n(all.row(t).begin() + 7, 50, &x.at(t, 0));
      const Values expected = multiply(backend, x, *matrix, {});
      Values out(rows, 60, -7);
      backend.matmul(out.view().col_range(11, 51), all.view().col_range(7, 57), *matrix, {});
      Values columns(rows, 40);
      for (std::int64_t t = 0; t < rows; ++t) std::copy_n(out.row(t).begin() + 11, 40, &columns.at(t, 0));
      // A device may choose another order of sums for other strides.
      require_close(
          columns, [&](std::int64_t t, std::int64_t n) { return expected.at(t, n); },
          [&](std::int64_t t, std::int64_t n) { return sum_tolerance(50, norm_of(x.row(t)), norm_of(w.row(n))); });
      for (std::int64_t t = 0; t < rows; ++t) {
        for (const std::int64_t untouched : {0, 10, 51, 59}) REQUIRE(out.at(t, untouched) == -7);
      }
    }
  });
}

TEST_CASE("load_matrix stacks parts and reads every type") {
  const std::vector<std::uint16_t> half = {0x3c00, 0xc000, 0x3555, 0x0001};  // f16: 1, -2, 0.33325, 2^-24
  const std::vector<std::uint16_t> brain = {0x3f80, 0xc000};                 // bf16: 1, -2
  const std::vector<float> full = {1.00390625f, 3, 1.01171875f, 4};          // the first: a tie of bf16, to even
  const ConstTensorView parts[] = {
      BasicView<const std::byte>{reinterpret_cast<const std::byte*>(half.data()), DType::f16, 2, 2, 2},
      BasicView<const std::byte>{reinterpret_cast<const std::byte*>(brain.data()), DType::bf16, 1, 2, 2},
      view_of(full.data(), 2, 2),
  };
  for_each_backend([&](Backend& backend) {
    const std::vector<std::int32_t> ids = {4, 0, 1, 2, 3, 0};
    for (const DType dtype : kStored) {
      const auto matrix = backend.load_matrix(parts, dtype);
      REQUIRE(matrix->rows == 5);
      REQUIRE(matrix->cols == 2);
      REQUIRE(matrix->dtype == dtype);
      Values out(6, 2);
      backend.embed(out.view(), *matrix, ids);
      const bool exact = dtype == DType::f32;
      const float third = exact ? 0.333251953125f : 0.333984375f;
      REQUIRE(out.data == std::vector<float>{exact ? 1.01171875f : 1.015625f, 4, 1, -2, third, 0x1p-24f, 1, -2,
                                             exact ? 1.00390625f : 1.0f, 3, 1, -2});
    }
  });
}

TEST_CASE("embed picks rows of any panel") {
  Random random(5);
  const auto reference = make_reference_backend();
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : kStored) {
      for (const std::int64_t vocabulary : kSizes) {
        const Values table = random.values(vocabulary, 37);
        std::vector<std::int32_t> ids;
        for (int i = 0; i < 50; ++i) ids.push_back(random.integer(0, vocabulary));
        Values expected(50, 37), actual(50, 37);
        reference->embed(expected.view(), *load(*reference, table, dtype), ids);
        backend.embed(actual.view(), *load(backend, table, dtype), ids);
        require_same_bits(actual.data, expected.data);
        REQUIRE(expected.at(7, 3) == round_to(table.at(ids[7], 3), dtype));
      }
    }
  });
}

TEST_CASE("random weights are those of the seed and the place, wherever they are made") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::int64_t cols : {5, 16, 1001}) {
        const auto matrix = backend.random_matrix(7, cols, dtype, 99, 0.25f);
        REQUIRE(matrix->rows == 7);
        REQUIRE(matrix->cols == cols);
        Values out(7, cols);
        backend.embed(out.view(), *matrix, std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6});
        double squares = 0;
        for (std::size_t i = 0; i < out.data.size(); ++i) {
          REQUIRE(out.data[i] == round_to(random_weight(99, i, 0.25f), DType::bf16));
          squares += std::pow(static_cast<double>(out.data[i]), 2);
        }
        if (cols > 1000)
          REQUIRE(std::sqrt(squares / static_cast<double>(out.data.size())) == Approx(0.25).epsilon(0.05));
        Values sums(1, 7);  // and the padding of its rows counts for nothing
        const Values ones(1, cols, 1.0f);
        backend.matmul(sums.view(), ones.view(), *matrix, {});
        for (std::int64_t row = 0; row < 7; ++row) {
          double sum = 0;
          for (const float value : out.row(row)) sum += value;
          REQUIRE(sums.at(0, row) == Approx(sum).margin(1e-3));
        }
      }
    }
  });
}

}  // namespace
}  // namespace baton::test::matmul_test
