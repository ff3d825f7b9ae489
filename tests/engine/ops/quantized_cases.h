// SPDX-License-Identifier: Apache-2.0
// Random matrices of quantised blocks.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "engine/tensor/block_types.h"
#include "tests/engine/ops/fixtures.h"

namespace baton::test {

/// The types that backends multiply as they are.
inline constexpr BlockType kQuantized[] = {BlockType::q8_0, BlockType::q4_0, BlockType::q4_1,   BlockType::q5_0,
                                           BlockType::q5_1, BlockType::q4_k, BlockType::q5_k,   BlockType::q6_k,
                                           BlockType::q2_k, BlockType::q3_k, BlockType::iq4_nl, BlockType::iq4_xs,
                                           BlockType::mxfp4};

struct Blocks {
  std::vector<std::byte> data;
  BlockType type = BlockType::q8_0;
  std::int64_t rows = 0, cols = 0;

  BlockView view() const { return {data, type, rows, cols}; }
  /// [rows, cols], as dequantize() reads them.
  Values values() const {
    Values out(rows, cols);
    dequantize(out.data, data, type);
    return out;
  }
};

/// A 16-bit float of either sign between 2^-10 and 2^-3; one in sixteen is zero or subnormal.
inline std::uint16_t random_half(Random& random) {
  const int exponent = random.integer(0, 16) == 0 ? 0 : random.integer(5, 12);
  return static_cast<std::uint16_t>(random.integer(0, 2) << 15 | exponent << 10 | random.integer(0, 1024));
}

/// An exponent of MXFP4 whose scale is as large; one in sixteen makes it subnormal.
inline std::uint8_t random_exponent(Random& random) {
  return static_cast<std::uint8_t>(random.integer(0, 16) == 0 ? random.integer(0, 3) : random.integer(118, 126));
}

/// Any bytes are quants: extreme ones (all 0, all 255) are as frequent as random ones.
inline Blocks random_blocks(Random& random, BlockType type, std::int64_t rows, std::int64_t cols) {
  Blocks out{{}, type, rows, cols};
  const BlockFormat& format = format_of(type);
  const auto size = static_cast<std::size_t>(format.bytes);
  out.data.resize(static_cast<std::size_t>(rows * row_bytes(type, cols)));
  for (std::size_t begin = 0; begin < out.data.size(); begin += size) {
    const int kind = random.integer(0, 4);
    for (std::size_t i = 0; i < size; ++i) {
      out.data[begin + i] = static_cast<std::byte>(kind == 0 ? 0 : kind == 1 ? 255 : random.integer(0, 256));
    }
    for (const std::int16_t at : format.scales) {
      const std::uint16_t half = random_half(random);
      if (at >= 0) std::memcpy(&out.data[begin + static_cast<std::size_t>(at)], &half, sizeof(half));
    }
    if (type == BlockType::mxfp4) out.data[begin] = static_cast<std::byte>(random_exponent(random));
  }
  return out;
}

/// Normal values; some blocks of 32 are of one size, at the ends of what 8 bits hold, some zero, some tiny.
inline Values random_activations(Random& random, std::int64_t rows, std::int64_t cols) {
  Values out = random.values(rows, cols);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t c = 0; c < cols; c += 32) {
      const int kind = random.integer(0, 8);
      const float sign = random.integer(0, 2) == 0 ? 1.0f : -1.0f;
      for (std::int64_t i = c; i < c + 32 && kind < 4; ++i) {
        out.at(t, i) = kind == 0 ? sign * 2 : kind == 1 ? (i % 2 == 0 ? 3.0f : -3.0f) : kind == 2 ? 0 : 1e-33f * sign;
      }
    }
  }
  return out;
}

inline std::unique_ptr<Matrix> load(Backend& backend, const Blocks& blocks,
                                    Activations activations = Activations::int8) {
  const BlockView part = blocks.view();
  return backend.load_quantized_matrix({&part, 1}, activations);
}

/// A number of columns that rows of the type may have: `blocks` blocks of 32, or of 256.
inline std::int64_t columns_of(BlockType type, std::int64_t blocks) { return blocks * format_of(type).values; }

/// `small` blocks of 32 values or `large` ones of 256, whichever the type has.
inline std::int64_t columns_of(BlockType type, std::int64_t small, std::int64_t large) {
  return format_of(type).values == 256 ? 256 * large : 32 * small;
}

inline std::string name_of(BlockType type) { return std::string(format_of(type).name); }

}  // namespace baton::test
