// SPDX-License-Identifier: Apache-2.0
// Weights of 8 and 4 bits, by hand: floats, the places of integers in words, and what is kept in blocks.
#include "engine/model/checkpoint_weights.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

namespace packed_weights_test {

using namespace baton;

namespace {

std::vector<float> values_of(const StoredWeight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  dequantize(values, {weight.data.get(), static_cast<std::size_t>(weight.rows * row_bytes(weight.type, weight.cols))},
             weight.type);
  return values;
}

std::span<const std::byte> bytes_of(const std::vector<std::uint32_t>& words) { return std::as_bytes(std::span(words)); }

/// Two outputs of 64 inputs in groups of 32, codes 0 to 15 in turn.
Int4Matrix matrix_of(std::vector<std::uint8_t> zeros, std::vector<float> scales) {
  Int4Matrix matrix{
      .rows = 2, .cols = 64, .codes = {}, .group = {}, .zeros = std::move(zeros), .scales = std::move(scales)};
  for (int i = 0; i < 128; ++i) matrix.codes.push_back(static_cast<std::uint8_t>(i % 16));
  for (int c = 0; c < 64; ++c) matrix.group.push_back(c / 32);
  return matrix;
}

/// The definition, one value at a time.
void require_values(const Int4Matrix& matrix) {
  const std::vector<float> values = values_of(stored(matrix));
  for (std::int64_t n = 0; n < matrix.rows; ++n) {
    for (std::int64_t c = 0; c < matrix.cols; ++c) {
      const auto at = static_cast<std::size_t>(matrix.group[static_cast<std::size_t>(c)] * matrix.rows + n);
      const auto i = static_cast<std::size_t>(n * matrix.cols + c);
      REQUIRE(values[i] == static_cast<float>(matrix.codes[i] - matrix.zeros[at]) * matrix.scales[at]);
    }
  }
}

}  // namespace

TEST_CASE("8-bit floats by hand") {
  CHECK(e4m3_to_f32(0x00) == 0.0f);
  CHECK(std::signbit(e4m3_to_f32(0x80)));
  CHECK(e4m3_to_f32(0x01) == 0x1p-9f);      // the smallest
  CHECK(e4m3_to_f32(0x07) == 7 * 0x1p-9f);  // the largest subnormal
  CHECK(e4m3_to_f32(0x08) == 0x1p-6f);      // the smallest normal
  CHECK(e4m3_to_f32(0x38) == 1.0f);
  CHECK(e4m3_to_f32(0xbc) == -1.5f);
  CHECK(e4m3_to_f32(0x78) == 256.0f);  // no infinity: the exponent of 15 is one of numbers
  CHECK(e4m3_to_f32(0x7e) == 448.0f);  // the largest
  CHECK(std::isnan(e4m3_to_f32(0x7f)));
  CHECK(std::isnan(e4m3_to_f32(0xff)));
}

TEST_CASE("blocks of 8-bit floats end with the matrix") {
  const std::vector<std::byte> ones(15, std::byte{0x38});  // [3, 5] in blocks of 2 x 2
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  const StoredWeight weight =
      dequantized(Fp8Matrix{.bytes = ones, .rows = 3, .cols = 5, .scales = scales, .block_rows = 2, .block_cols = 2});
  CHECK(weight.type == BlockType::f32);
  CHECK(values_of(weight) == std::vector<float>{1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6});
}

TEST_CASE("words of GPTQ go along the inputs, zeros along the outputs") {
  // [1, 2] words: output 0 has inputs 0 to 7 = 0 to 7, output 1 has 15 down to 8.
  CHECK(gptq_codes(bytes_of({0x76543210, 0x89abcdef}), 2, 8) ==
        std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 15, 14, 13, 12, 11, 10, 9, 8});
  CHECK(gptq_zeros(bytes_of({0x76543210}), false) == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(gptq_zeros(bytes_of({0x77777777}), true) == std::vector<std::uint8_t>(8, 8));
  CHECK(gptq_zeros(bytes_of({0x76543210 - 0x11111111}), true) == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("words of AWQ go along the outputs, even ones first") {
  const std::vector<std::uint32_t> word = {0x75316420};  // from low to high: outputs 0, 2, 4, 6, 1, 3, 5, 7
  CHECK(awq_zeros(bytes_of(word)) == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(awq_codes(bytes_of({0x75316420, 0x11111111}), 8, 2) ==  // [8 outputs, 2 inputs]
        std::vector<std::uint8_t>{0, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7, 1});
}

TEST_CASE("integers stay in blocks where those hold the same values") {
  const Int4Matrix middle = matrix_of({8, 8, 8, 8}, {0.5f, -0.25f, 0x1p-20f, 65504.0f});
  CHECK(stored(middle).type == BlockType::q4_0);
  require_values(middle);
  const Int4Matrix zeros = matrix_of({0, 15, 8, 7}, {0.5f, 1.0f / 1024, 3 * 0x1p-24f, 0.0f});
  CHECK(stored(zeros).type == BlockType::q5_0);
  require_values(zeros);

  // No f16 numbers: too many digits, too large, too small, too many digits below the normal ones.
  for (const float scale : {1.0f + 0x1p-11f, 65536.0f, 0x1p-25f, 0x1.8p-24f}) {
    const Int4Matrix other = matrix_of({8, 8, 8, 8}, {0.5f, 0.5f, scale, 0.5f});
    INFO(scale);
    CHECK(stored(other).type == BlockType::f32);
    require_values(other);
  }
  Int4Matrix mixed = matrix_of({8, 8, 8, 8}, {0.5f, 0.25f, 2.0f, 3.0f});
  std::swap(mixed.group[5], mixed.group[40]);
  CHECK(stored(mixed).type == BlockType::f32);
  require_values(mixed);
  Int4Matrix narrow{.rows = 1,
                    .cols = 8,
                    .codes = {0, 1, 2, 3, 4, 5, 6, 7},
                    .group = std::vector<std::int32_t>(8),
                    .zeros = {8},
                    .scales = {2}};
  CHECK(stored(narrow).type == BlockType::f32);
  require_values(narrow);
}

}  // namespace packed_weights_test
