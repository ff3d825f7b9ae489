// SPDX-License-Identifier: Apache-2.0
// Products of bf16 weights with bf16 activations, in pairs where the processor multiplies them.
#include "engine/cpu/matmul.h"

#include "targets.h"
#include "tests/engine/ops/fixtures.h"

namespace baton::test::matmul_bf16_test {
namespace {

std::unique_ptr<Matrix> load_rounded(Backend& backend, const Values& values) {
  return load(backend, values, DType::bf16, Activations::bf16);
}

/// Numbers of very different sizes, denormals and values around the smallest operand among them.
Values of_all_sizes(Random& random, std::int64_t rows, std::int64_t cols, int least, int most) {
  Values out = random.values(rows, cols);
  for (float& value : out.data) value = std::ldexp(value, random.integer(least, most));
  return out;
}

TEST_CASE("products with bf16 activations have the bits of the reference") {
  Random random(90);
  const auto reference = make_reference_backend();
  std::vector<std::array<std::int64_t, 3>> shapes;  // T, C, N
  for (const std::int64_t size : kSizes) {
    shapes.push_back({size, 48, 64});
    shapes.push_back({7, size, 96});
    shapes.push_back({5, 40, size});
    shapes.push_back({size, size, size});
  }
  for (std::int64_t rows = 1; rows <= 38; ++rows) shapes.push_back({rows, 71, 200});
  for (const std::int64_t depth : {255, 256, 257, 520}) {
    shapes.push_back({3, depth, 70});
    shapes.push_back({40, depth, 70});
  }
  shapes.push_back({245, 260, 290});  // more than one block of rows
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    const auto cpu = make_cpu_backend(3);
    for (const auto& [rows, depth, width] : shapes) {
      const Values w = random.values(width, depth);
      const Values x = random.values(rows, depth);
      const std::vector<float> bias = random.vector(rows % 2 == 0 ? width : 0);
      const Values expected = multiply(*reference, x, *load_rounded(*reference, w), bias);
      const Values actual = multiply(*cpu, x, *load_rounded(*cpu, w), bias);
      INFO(hwy::TargetName(target) << " T " << rows << " C " << depth << " N " << width);
      if (is_fused(target)) {
        require_same_bits(actual.data, expected.data);
      } else {
        require_close(
            actual, [&](auto t, auto n) { return expected.at(t, n); },
            [&, c = depth](auto t, auto n) {
              return sum_tolerance(c + 1, 2 * norm_of(x.row(t)), norm_of(w.row(n))) + kEpsilon;
            });
      }
    }
  }
}

// The instruction takes denormals as zeros and flushes results to zero. Sums near 2^-126, and those that cancel to it,
// show whether any of its operands or results can be denormal.
TEST_CASE("products with bf16 activations have the reference's bits for numbers of any size") {
  Random random(91);
  const auto reference = make_reference_backend();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!is_fused(target)) continue;
    const OnlyTarget only(target);
    const auto cpu = make_cpu_backend(2);
    for (const auto& [least, most] : {std::pair{-62, -50}, {-149, 60}, {-140, -120}, {-8, 8}}) {
      for (const std::int64_t rows : {1, 9, 40}) {
        const Values w = of_all_sizes(random, 70, 67, least, most), x = of_all_sizes(random, rows, 67, least, most);
        const std::vector<float> bias = of_all_sizes(random, 1, 70, 2 * least < -149 ? -149 : 2 * least, most).data;
        INFO(hwy::TargetName(target) << " T " << rows << " exponents from " << least);
        require_same_bits(multiply(*cpu, x, *load_rounded(*cpu, w), bias).data,
                          multiply(*reference, x, *load_rounded(*reference, w), bias).data);
      }
    }
  }
}

TEST_CASE("what the rounding to bf16 makes of inputs") {
  Random random(92);
  const auto backend = make_cpu_backend(1);
  const auto both = [&](const std::function<void(Backend&)>& body) {
    body(*make_reference_backend());
    body(*backend);
  };
  both([](Backend& of) {
    Values one(1, 3);
    one.data = {1, 0x1p-57f, 1};
    const auto w = load_rounded(of, one);
    Values x(6, 3);
    x.data = {1.00390625f, 1e30f,    0,            // a tie, to even; a weight that is zero
              1.01171875f, 0,        0,            // a tie, to even
              0x1p-56f,    0,        -0x1p-57f,    // the smallest operand, and less
              0x1.fep-57f, 0,        0x1.ffp-57f,  // less; rounded up to the smallest
              3.3e38f,     0,        -3.3e38f,     // large values
              1,           0x1p-57f, -0x1p-149f};
    REQUIRE(multiply(of, x, *w, {}).data == std::vector<float>{1, 1.015625f, 0x1p-56f, 0x1p-56f, 0, 1});
    REQUIRE(multiply(of, Values(1, 3), *w, std::vector{0x1p-57f}).data == std::vector<float>{0});
    Values row(1, 3);
    of.embed(row.view(), *w, std::vector<std::int32_t>{0});
    REQUIRE(row.data == std::vector<float>{1, 0, 1});
    x.data[1] = std::nanf("");
    REQUIRE(std::isnan(multiply(of, x, *w, {}).data[0]));
  });
}

TEST_CASE("weights in pairs and in panels give the same bits, and embed reads both") {
  Random random(93);
  const auto owner = make_cpu_backend(1);
  cpu::ThreadPool pool(2);
  cpu::Scratch scratch(*owner, 2);
  const Values w = random.values(75, 301), x = random.values(41, 301);
  const ConstTensorView part = w.view();
  cpu::LastingMemory memory;
  const auto plain = cpu::pack_matrix(memory, pool, {&part, 1}, w.rows, {DType::bf16, Activations::bf16, false});
  const auto pairs = cpu::pack_matrix(memory, pool, {&part, 1}, w.rows, {DType::bf16, Activations::bf16, true});
  std::vector<float> from_plain(301), from_pairs(301);
  for (const std::int64_t row : {0, 31, 32, 74}) {
    cpu::unpack_row(from_plain.data(), *plain, row);
    cpu::unpack_row(from_pairs.data(), *pairs, row);
    require_same_bits(from_pairs, from_plain);
    REQUIRE(from_pairs[300] == round_to(w.at(row, 300), DType::bf16));
  }
  if (!cpu::multiplies_pairs(cpu::dot_instructions())) return;
  Values expected(41, 75), actual(41, 75);
  cpu::matmul_bf16(pool, scratch, expected.view(), x.view(), *plain, {});
  cpu::matmul_bf16(pool, scratch, actual.view(), x.view(), *pairs, {});
  require_same_bits(actual.data, expected.data);
}

TEST_CASE("bf16 activations: a row has the same bits alone, in company, and for any number of threads") {
  Random random(94);
  const Values w = random.values(517, 389);
  const Values x = random.values(70, 389);
  const std::vector<float> bias = random.vector(517);
  const auto one = make_cpu_backend(1);
  const Values whole = multiply(*one, x, *load_rounded(*one, w), bias);
  for (const int threads : {1, 2, 3, 5}) {
    const auto backend = make_cpu_backend(threads);
    const auto matrix = load_rounded(*backend, w);
    for (int round = 0; round < 8; ++round) {
      for (std::int64_t begin = 0; begin < x.rows;) {  // random splits into calls
        const std::int64_t end = std::min<std::int64_t>(x.rows, begin + random.integer(1, 50));
        Values out(end - begin, w.rows);
        backend->matmul(out.view(), x.view().row_range(begin, end), *matrix, bias);
        INFO(threads << " threads, rows [" << begin << ", " << end << ")");
        require_same_bits(out.data, std::span(whole.data).subspan(begin * w.rows, (end - begin) * w.rows));
        begin = end;
      }
    }
  }
}

}  // namespace
}  // namespace baton::test::matmul_bf16_test
