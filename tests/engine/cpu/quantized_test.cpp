// SPDX-License-Identifier: Apache-2.0
// The integer products of the CPU: the bits of the oracle on every target, whatever rows share a call.
#include <algorithm>
#include <numeric>

#include "engine/base/errors.h"
#include "engine/cpu/quantized/quantized.h"
#include "targets.h"
#include "tests/engine/ops/quantized_cases.h"

namespace baton::test::quantized_test {
namespace {

TEST_CASE("quants of the oracle are those of dequantize") {
  Random random(20);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 1, columns_of(type, 20));
    const Values values = w.values();
    for (std::int64_t c = 0; c < w.cols; ++c) {
      const cpu::Quant quant = cpu::quant_of(type, w.data.data(), c);
      const float product = static_cast<float>(quant.quant) * quant.scale;
      INFO(name_of(type) << " [" << c << "]");
      REQUIRE(values.at(0, c) == (quant.has_minimum ? product + quant.minimum : product));
    }
  }
}

TEST_CASE("embed of quantised rows has the bits of dequantize") {
  Random random(12);
  for (const bool fast : {false, true}) {
    const auto backend = fast ? make_cpu_backend(2) : make_reference_backend();
    for (const BlockType type : kQuantized) {
      for (const std::int64_t rows : kSizes) {
        const Blocks table = random_blocks(random, type, rows, columns_of(type, 9, 2));
        std::vector<std::int32_t> ids;
        for (std::int32_t i = 0; i < rows; ++i) ids.push_back(i);
        Values out(rows, table.cols);
        backend->embed(out.view(), *load(*backend, table), ids);
        INFO(name_of(type) << " " << backend->info().name);
        require_same_bits(out.data, table.values().data);
      }
    }
  }
}

TEST_CASE("rows of floats are kept in bf16") {
  Random random(13);
  const auto cpu = make_cpu_backend(1);
  for (const BlockType type : {BlockType::f32, BlockType::f16, BlockType::bf16}) {
    Blocks table = random_blocks(random, type, 5, 256);
    for (std::byte& byte : table.data) byte &= std::byte{0x3b};  // no infinities, whatever the layout
    const auto matrix = load(*cpu, table);
    REQUIRE(matrix->dtype == DType::bf16);
    Values out(1, 256);
    cpu->embed(out.view(), *matrix, std::vector<std::int32_t>{4});
    const Values all = table.values();
    for (std::int64_t c = 0; c < 256; ++c) REQUIRE(out.at(0, c) == round_to(all.at(4, c), DType::bf16));
  }
}

TEST_CASE("rows of a large matrix are read once, in order, in pieces of a few megabytes") {
  Random random(25);
  const auto cpu = make_cpu_backend(2);
  const Blocks table = random_blocks(random, BlockType::q4_0, 17'003, 1024);  // 9 MiB
  const BlockView view = table.view();
  std::int64_t next = 0, pieces = 0;
  const BlockRows part{view.type, view.rows, view.cols, [&](std::span<std::byte> out, std::int64_t first) {
                         REQUIRE(first == next);
                         REQUIRE(out.size() <= std::size_t{4} << 20);
                         REQUIRE(out.size() % static_cast<std::size_t>(row_bytes(view.type, view.cols)) == 0);
                         std::memcpy(out.data(), view.row(first), out.size());
                         next += static_cast<std::int64_t>(out.size()) / row_bytes(view.type, view.cols);
                         ++pieces;
                       }};
  const auto matrix = cpu->load_quantized_rows({&part, 1}, Activations::int8);
  CHECK(next == view.rows);
  CHECK(pieces == 3);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(view.rows));
  std::iota(ids.begin(), ids.end(), 0);
  Values out(view.rows, view.cols);
  cpu->embed(out.view(), *matrix, ids);
  require_same_bits(out.data, table.values().data);

  const BlockRows failing{view.type, view.rows, view.cols, [](std::span<std::byte>, std::int64_t first) {
                            if (first > 0) throw ModelError("the file ends here");
                          }};
  CHECK_THROWS_AS(cpu->load_quantized_rows({&failing, 1}, Activations::int8), ModelError);
}

struct Shape {
  std::int64_t rows, blocks, width;
};

/// Rows around the sizes of tiles, depths around the chunk of 256, widths around the panel of 32.
std::vector<Shape> shapes_of(BlockType type) {
  std::vector<Shape> shapes;
  const bool large = format_of(type).values == 256;
  for (std::int64_t rows = 1; rows <= 14; ++rows) shapes.push_back({rows, 3, 33});
  for (const std::int64_t width : kSizes) shapes.push_back({3, 2, width});
  for (std::int64_t blocks = 1; blocks <= (large ? 3 : 18); ++blocks) {
    shapes.push_back({2, blocks, 40});
    shapes.push_back({7, blocks, 40});
  }
  for (const std::int64_t rows : {15, 16, 17, 21, 22, 23, 24, 25}) shapes.push_back({rows, 3, 33});  // where kinds end
  shapes.push_back({259, 2, 70});  // more than one block of rows
  return shapes;
}

void require_bits_of_oracle(Activations activations) {
  Random random(21);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(3);
  for (const BlockType type : kQuantized) {
    for (const auto& [rows, blocks, width] : shapes_of(type)) {
      const Blocks w = random_blocks(random, type, width, columns_of(type, blocks));
      const Values x = random_activations(random, rows, w.cols);
      const std::vector<float> bias = random.vector(rows % 2 == 0 ? width : 0);
      const Values expected = multiply(*reference, x, *load(*reference, w, activations), bias);
      const auto matrix = load(*cpu, w, activations);
      for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        const OnlyTarget only(target);
        INFO(hwy::TargetName(target) << " " << name_of(type) << " T " << rows << " C " << w.cols << " N " << width);
        const Values actual = multiply(*cpu, x, *matrix, bias);
        if (is_fused(target)) {
          require_same_bits(actual.data, expected.data);
        } else {
          const Values weights = w.values();
          require_close(
              actual, [&](auto t, auto n) { return expected.at(t, n); },
              [&, cols = w.cols](auto t, auto n) {
                return 64 * sum_tolerance(cols + 1, norm_of(x.row(t)), norm_of(weights.row(n))) + kEpsilon;
              });
        }
      }
    }
  }
}

TEST_CASE("quantised matmul has the bits of the reference") { require_bits_of_oracle(Activations::int8); }

TEST_CASE("quantised matmul with f32 activations has the bits of the reference") {
  require_bits_of_oracle(Activations::f32);
}

TEST_CASE("quantised matmul with f32 activations has the bits of a product with the dequantised weight") {
  Random random(22);
  const auto backend = make_cpu_backend(2);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 45, columns_of(type, 2));
    const Values x = random_activations(random, 9, w.cols);
    require_same_bits(multiply(*backend, x, *load(*backend, w, Activations::f32), {}).data,
                      multiply(*backend, x, *load(*backend, w.values(), DType::f32), {}).data);
  }
}

/// q, k and v as files mix them, and parts whose panels are not full.
std::vector<Blocks> mixed_parts(Random& random) {
  std::vector<Blocks> parts;
  for (const BlockType type : kQuantized) {
    parts.push_back(random_blocks(random, type, random.integer(1, 100), 768));
  }
  return parts;
}

std::vector<BlockView> views_of(const std::vector<Blocks>& parts) {
  std::vector<BlockView> views;
  for (const Blocks& part : parts) views.push_back(part.view());
  return views;
}

TEST_CASE("parts of different types are one matrix") {
  Random random(23);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(2);
  for (int round = 0; round < 5; ++round) {
    std::vector<Blocks> parts = mixed_parts(random);
    std::shuffle(parts.begin(), parts.end(), std::mt19937(static_cast<unsigned>(round)));
    const auto expected_matrix = reference->load_quantized_matrix(views_of(parts), Activations::int8);
    const auto matrix = cpu->load_quantized_matrix(views_of(parts), Activations::int8);
    REQUIRE(matrix->rows == expected_matrix->rows);
    const std::vector<float> bias = random.vector(matrix->rows);
    for (const std::int64_t rows : {1, 4, 11, 40}) {
      const Values x = random_activations(random, rows, 768);
      const Values expected = multiply(*reference, x, *expected_matrix, bias);
      const Values actual = multiply(*cpu, x, *matrix, bias);
      if (machine_is_fused()) require_same_bits(actual.data, expected.data);
    }
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < matrix->rows; ++i) ids.push_back(i);
    Values expected(matrix->rows, 768), actual(matrix->rows, 768);
    reference->embed(expected.view(), *expected_matrix, ids);
    cpu->embed(actual.view(), *matrix, ids);
    require_same_bits(actual.data, expected.data);
  }
}

TEST_CASE("quantised matmul: a row has the same bits alone, in company, and for any number of threads") {
  Random random(24);
  const std::vector<Blocks> parts = mixed_parts(random);
  const Values x = random_activations(random, 300, 768);
  for (const Activations activations : {Activations::int8, Activations::f32}) {
    const auto one = make_cpu_backend(1);
    const auto first = one->load_quantized_matrix(views_of(parts), activations);
    const std::vector<float> bias = random.vector(first->rows);
    const Values whole = multiply(*one, x, *first, bias);
    for (const int threads : {1, 2, 3, 5}) {
      const auto backend = make_cpu_backend(threads);
      const auto matrix = backend->load_quantized_matrix(views_of(parts), activations);
      for (int round = 0; round < 4; ++round) {
        for (std::int64_t begin = 0; begin < x.rows;) {  // random splits into calls, some of them of many rows
          const std::int64_t end =
              std::min<std::int64_t>(x.rows, begin + random.integer(1, random.integer(0, 8) == 0 ? 280 : 12));
          Values out(end - begin, matrix->rows);
          backend->matmul(out.view(), x.view().row_range(begin, end), *matrix, bias);
          INFO(threads << " threads, rows [" << begin << ", " << end << ")");
          require_same_bits(out.data,
                            std::span(whole.data).subspan(begin * matrix->rows, (end - begin) * matrix->rows));
          begin = end;
        }
      }
    }
  }
}

TEST_CASE("quantised matmul reads and writes columns of wider matrices") {
  Random random(25);
  const auto backend = make_cpu_backend(2);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 40, 256);
    const auto matrix = load(*backend, w);
    for (const std::int64_t rows : {1, 4, 30}) {
      const Values all = random_activations(random, rows, 320);
      Values x(rows, 256);
      for (std::int64_t t = 0; t < rows; ++t) std::copy_n(all.row(t).begin() + 7, 256, &x.at(t, 0));
      const Values expected = multiply(*backend, x, *matrix, {});
      Values out(rows, 60, -7);
      backend->matmul(out.view().col_range(11, 51), all.view().col_range(7, 263), *matrix, {});
      for (std::int64_t t = 0; t < rows; ++t) {
        require_same_bits(out.row(t).subspan(11, 40), expected.row(t));
        for (const std::int64_t untouched : {0, 10, 51, 59}) REQUIRE(out.at(t, untouched) == -7);
      }
    }
  }
}

TEST_CASE("quantised matmul: values that are not finite make their row NaN, and no other") {
  Random random(26);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 33, 256);
    for (const bool fast : {false, true}) {
      const auto backend = fast ? make_cpu_backend(2) : make_reference_backend();
      const auto matrix = load(*backend, w);
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        Values x = random.values(40, 256);
        const Values before = multiply(*backend, x, *matrix, {});
        x.at(3, 100) = bad;
        const Values after = multiply(*backend, x, *matrix, {});
        for (std::int64_t t = 0; t < x.rows; ++t) {
          if (t != 3) require_same_bits(after.row(t), before.row(t));
        }
        for (const float value : after.row(3)) REQUIRE(std::isnan(value));
      }
    }
  }
}

TEST_CASE("packed weights take at most four percent more than their blocks") {
  Random random(27);
  const auto backend = make_cpu_backend(1);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 64, 512);
    INFO(name_of(type));
    REQUIRE(static_cast<double>(load(*backend, w)->bytes) <= 1.04 * static_cast<double>(w.data.size()));
  }
}

}  // namespace
}  // namespace baton::test::quantized_test
