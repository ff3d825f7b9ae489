// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/quantized/quantized.h"
#include "tests/engine/ops/quantized_cases.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::quantized_test {
namespace {

using Catch::Contains;

template <class Block>
Blocks row_of(BlockType type, const std::vector<Block>& blocks, std::int64_t rows) {
  Blocks out{{}, type, rows, static_cast<std::int64_t>(blocks.size()) / rows * format_of(type).values};
  for (const Block& block : blocks) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&block);
    out.data.insert(out.data.end(), bytes, bytes + sizeof(Block));
  }
  return out;
}

TEST_CASE("quantised matmul by hand") {
  BlockQ8_0 eight{0x3800, {}};  // 0.5 * (1, 2, -3, 0, ...)
  eight.q[0] = 1;
  eight.q[1] = 2;
  eight.q[31] = -3;
  BlockQ4_1 four{0x4000, 0x3c00, {}};  // 2 * q + 1 with quants 3 (input 0), 5 (input 16), 0
  four.q[0] = 0x53;
  const Blocks parts[] = {row_of<BlockQ8_0>(BlockType::q8_0, {eight}, 1),
                          row_of<BlockQ4_1>(BlockType::q4_1, {four}, 1)};
  const BlockView views[] = {parts[0].view(), parts[1].view()};
  Values x(1, 32);  // 127 / 127 is the scale of the inputs: they are integers as they are
  x.data[0] = 127;
  x.data[1] = 10;
  x.data[16] = -4;
  x.data[31] = 2;
  const std::vector<float> bias = {0.25f, -1};
  for_each_backend([&](Backend& backend) {
    const auto matrix = backend.load_quantized_matrix(views, Activations::int8);
    REQUIRE(matrix->rows == 2);
    REQUIRE(matrix->cols == 32);
    const std::vector<float> expected = {0.5f * (127 + 20 - 6) + 0.25f, 2 * (3 * 127 - 5 * 4) + 135 - 1};
    REQUIRE(multiply(backend, x, *matrix, bias).data == expected);
    Values rows(2, 32);
    backend.embed(rows.view(), *matrix, std::vector<std::int32_t>{1, 0});
    REQUIRE(rows.at(0, 0) == 7);
    REQUIRE(rows.at(0, 16) == 11);
    REQUIRE(rows.at(0, 1) == 1);
    REQUIRE(rows.at(1, 0) == 0.5f);
    REQUIRE(rows.at(1, 31) == -1.5f);
  });
}

// The inputs of a block of 32 are off by at most half a step of its scale, max / 127 / 2, and a little for roundings of
// the scale. The chain in f32 has two operations for each 16 inputs at most, each off by at most an epsilon of all
// terms. Backends that keep the weight in bf16 round that instead, and its inputs.
TEST_CASE("quantised matmul agrees with the dequantised product in double") {
  Random random(11);
  for_each_subject([&](Backend& backend, const Subject& subject, const Way&) {
    for (const BlockType type : kQuantized) {
      const Blocks w = random_blocks(random, type, 37, columns_of(type, 3));
      const Values weights = w.values();
      const Values x = random_activations(random, 6, w.cols);
      const std::vector<float> bias = random.vector(37);
      const auto matrix = load(backend, w);
      const float rounding = matrix->dtype == DType::bf16 ? kBf16Rounding + subject.matmul_rounding(DType::bf16) : 0.0f;
      const Values out = multiply(backend, x, *matrix, bias);
      const auto exact = [&](std::int64_t t, std::int64_t n) {
        double sum = bias[n];
        for (std::int64_t c = 0; c < w.cols; ++c) {
          sum += static_cast<double>(x.at(t, c)) * static_cast<double>(weights.at(n, c));
        }
        return sum;
      };
      INFO(name_of(type));
      require_close(out, exact, [&](std::int64_t t, std::int64_t n) {
        float quantization = 0, terms = std::abs(bias[n]);
        const std::byte* row = w.view().row(n);
        for (std::int64_t c = 0; c < w.cols; ++c) {
          const float largest_input = std::max(largest(x.row(t).subspan(c / 32 * 32, 32)), 0x1p-100f * 254);
          quantization += largest_input / 254 * 1.0001f * std::abs(weights.at(n, c));
          const cpu::Quant quant = cpu::quant_of(type, row, c);
          terms += (std::abs(quant.quant * quant.scale) + std::abs(quant.minimum)) * std::abs(x.at(t, c));
        }
        return quantization + (static_cast<float>(w.cols / 8 + 4) * kEpsilon + rounding) * terms;
      });
    }
  });
}

TEST_CASE("quantised matrices that do not fit are refused with expected and actual") {
  Random random(14);
  for_each_backend([&](Backend& backend) {
    const Blocks good = random_blocks(random, BlockType::q5_0, 3, 64);
    const auto refused = [&](const BlockView& part, const std::string& words) {
      const BlockView parts[] = {good.view(), part};
      REQUIRE_THROWS_WITH(backend.load_quantized_matrix(parts, Activations::int8), Contains(words));
    };
    REQUIRE_THROWS_WITH(backend.load_quantized_matrix({}, Activations::int8), Contains("no parts"));
    refused({good.data, BlockType::q5_0, 3, 96}, "part 1: expected 64 columns, got 96");
    refused({good.data, BlockType::q5_0, 0, 64}, "part 1 is [0, 64]");
    refused({good.data, BlockType::q4_k, 3, 64}, "part 1: 64 columns are not blocks of 256, as Q4_K has them");
    refused({good.data, BlockType::q5_0, 4, 64}, "part 1: expected 176 bytes, got 132");
    refused({{}, BlockType::q5_0, 3, 64}, "part 1: expected 132 bytes, got 0");
    refused({good.data, BlockType::q5_0, std::int64_t{1} << 62, 64}, "is invalid: expected 0");
    const BlockView odd{good.data, BlockType::q5_0, 3, 33};
    REQUIRE_THROWS_WITH(backend.load_quantized_matrix({&odd, 1}, Activations::int8),
                        Contains("33 columns are not blocks of 32"));
    const auto matrix = load(backend, good);
    Values x(2, 63), out(2, 3);
    REQUIRE_THROWS_WITH(backend.matmul(out.view(), x.view(), *matrix, {}), Contains("expected [2, 64], got [2, 63]"));
  });
}

}  // namespace
}  // namespace baton::test::quantized_test
