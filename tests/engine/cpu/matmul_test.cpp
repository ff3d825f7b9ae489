// SPDX-License-Identifier: Apache-2.0
#include "targets.h"
#include "tests/engine/ops/fixtures.h"

namespace baton::test::matmul_test {
namespace {

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

}  // namespace
}  // namespace baton::test::matmul_test
