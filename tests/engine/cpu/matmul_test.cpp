#include "fixtures.h"
#include "targets.h"

namespace baton::test {
namespace {

Values multiply(Backend& backend, const Values& x, const Matrix& w, std::span<const float> bias) {
  Values out(x.rows, w.rows, std::nanf(""));
  backend.matmul(out.view(), x.view(), w, bias);
  return out;
}

TEST_CASE("matmul by hand") {
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(2);
  for (Backend* backend : {reference.get(), cpu.get()}) {
    Values w(3, 2);
    w.data = {1, 2, 3, 4, 5, 6};  // three outputs of two inputs
    Values x(2, 2);
    x.data = {1, 10, -1, 0.5};
    const std::vector<float> bias = {100, 0, -100};
    for (const DType dtype : kStored) {
      const auto matrix = load(*backend, w, dtype);
      REQUIRE(multiply(*backend, x, *matrix, {}).data == std::vector<float>{21, 43, 65, 0, -1, -2});
      REQUIRE(multiply(*backend, x, *matrix, bias).data == std::vector<float>{121, 43, -35, 100, -1, -102});
    }
  }
}

TEST_CASE("the reference matmul agrees with a dense product in double") {
  Random random(1);
  const auto backend = make_reference_backend();
  for (const DType dtype : kStored) {
    for (const std::int64_t depth : {1, 33, 300}) {
      const Values w = random.values(17, depth);
      const Values x = random.values(5, depth);
      const std::vector<float> bias = random.vector(17);
      const Values out = multiply(*backend, x, *load(*backend, w, dtype), bias);
      const auto exact = [&](std::int64_t t, std::int64_t n) {
        double sum = bias[n];
        for (std::int64_t c = 0; c < depth; ++c) {
          sum += static_cast<double>(x.at(t, c)) * static_cast<double>(round_to(w.at(n, c), dtype));
        }
        return sum;
      };
      require_close(out, exact, [&](std::int64_t t, std::int64_t n) {
        return sum_tolerance(depth + 1, norm_of(x.row(t)), norm_of(w.row(n))) + kEpsilon * std::abs(bias[n]);
      });
    }
  }
}

// Depths around the block of 256, widths around the panel of 32, rows around the ways through the kernel.
TEST_CASE("matmul has the bits of the reference") {
  Random random(2);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(3);
  std::vector<std::array<std::int64_t, 3>> shapes;  // T, C, N
  for (const std::int64_t size : kSizes) {
    shapes.push_back({size, 48, 64});
    shapes.push_back({7, size, 96});
    shapes.push_back({5, 40, size});
    shapes.push_back({size, size, size});
  }
  for (std::int64_t rows = 1; rows <= 30; ++rows) shapes.push_back({rows, 70, 200});
  for (const std::int64_t depth : {255, 256, 257, 520}) {
    shapes.push_back({3, depth, 70});
    shapes.push_back({40, depth, 70});
  }
  shapes.push_back({245, 260, 290});  // more than one block of rows
  for (const DType dtype : kStored) {
    for (const auto& [rows, depth, width] : shapes) {
      const Values w = random.values(width, depth);
      const Values x = random.values(rows, depth);
      const std::vector<float> bias = random.vector(rows % 2 == 0 ? width : 0);
      const Values expected = multiply(*reference, x, *load(*reference, w, dtype), bias);
      const auto matrix = load(*cpu, w, dtype);
      for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        const OnlyTarget only(target);
        const Values actual = multiply(*cpu, x, *matrix, bias);
        INFO(hwy::TargetName(target) << " " << name_of(dtype) << " T " << rows << " C " << depth << " N " << width);
        if (is_fused(target)) {
          require_same_bits(actual.data, expected.data);
        } else {
          require_close(
              actual, [&](auto t, auto n) { return expected.at(t, n); },
              [&, c = depth](auto t, auto n) {
                return sum_tolerance(c + 1, norm_of(x.row(t)), norm_of(w.row(n))) + kEpsilon;
              });
        }
      }
    }
  }
}

TEST_CASE("matmul: a row has the same bits alone, in company, and for any number of threads") {
  Random random(3);
  const Values w = random.values(517, 389);
  const Values x = random.values(70, 389);
  const std::vector<float> bias = random.vector(517);
  for (const DType dtype : kStored) {
    const auto one = make_cpu_backend(1);
    const Values whole = multiply(*one, x, *load(*one, w, dtype), bias);
    for (const int threads : {1, 2, 3, 5}) {
      const auto backend = make_cpu_backend(threads);
      const auto matrix = load(*backend, w, dtype);
      for (int round = 0; round < 8; ++round) {
        for (std::int64_t begin = 0; begin < x.rows;) {  // random splits into calls
          const std::int64_t end = std::min<std::int64_t>(x.rows, begin + random.integer(1, 32));
          Values out(end - begin, w.rows);
          backend->matmul(out.view(), x.view().row_range(begin, end), *matrix, bias);
          INFO(threads << " threads, rows [" << begin << ", " << end << ")");
          require_same_bits(out.data, std::span(whole.data).subspan(begin * w.rows, (end - begin) * w.rows));
          begin = end;
        }
      }
    }
  }
}

TEST_CASE("matmul reads and writes columns of wider matrices") {
  Random random(4);
  const auto backend = make_cpu_backend(2);
  const Values w = random.values(40, 50);
  const auto matrix = load(*backend, w, DType::bf16);
  for (const std::int64_t rows : {1, 4, 30}) {
    const Values wide = random.values(rows, 80);
    Values x(rows, 50);
    for (std::int64_t t = 0; t < rows; ++t) std::copy_n(wide.row(t).begin() + 7, 50, &x.at(t, 0));
    const Values expected = multiply(*backend, x, *matrix, {});
    Values out(rows, 60, -7);
    backend->matmul(out.view().col_range(11, 51), wide.view().col_range(7, 57), *matrix, {});
    for (std::int64_t t = 0; t < rows; ++t) {
      require_same_bits(out.row(t).subspan(11, 40), expected.row(t));
      for (const std::int64_t untouched : {0, 10, 51, 59}) REQUIRE(out.at(t, untouched) == -7);
    }
  }
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
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(1);
  for (Backend* backend : {reference.get(), cpu.get()}) {
    const std::vector<std::int32_t> ids = {4, 0, 1, 2, 3, 0};
    for (const DType dtype : kStored) {
      const auto matrix = backend->load_matrix(parts, dtype);
      REQUIRE(matrix->rows == 5);
      REQUIRE(matrix->cols == 2);
      REQUIRE(matrix->dtype == dtype);
      Values out(6, 2);
      backend->embed(out.view(), *matrix, ids);
      const bool exact = dtype == DType::f32;
      const float third = exact ? 0.333251953125f : 0.333984375f;
      REQUIRE(out.data == std::vector<float>{exact ? 1.01171875f : 1.015625f, 4, 1, -2, third, 0x1p-24f, 1, -2,
                                             exact ? 1.00390625f : 1.0f, 3, 1, -2});
    }
  }
}

TEST_CASE("embed picks rows of any panel") {
  Random random(5);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(2);
  for (const DType dtype : kStored) {
    for (const std::int64_t vocabulary : kSizes) {
      const Values table = random.values(vocabulary, 37);
      std::vector<std::int32_t> ids;
      for (int i = 0; i < 50; ++i) ids.push_back(random.integer(0, vocabulary));
      Values expected(50, 37), actual(50, 37);
      reference->embed(expected.view(), *load(*reference, table, dtype), ids);
      cpu->embed(actual.view(), *load(*cpu, table, dtype), ids);
      require_same_bits(actual.data, expected.data);
      REQUIRE(expected.at(7, 3) == round_to(table.at(ids[7], 3), dtype));
    }
  }
}

}  // namespace
}  // namespace baton::test
