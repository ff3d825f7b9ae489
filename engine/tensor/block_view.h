// SPDX-License-Identifier: Apache-2.0
// A matrix of quantised blocks as a GGUF file holds it: row after row, no padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "engine/tensor/block_types.h"

namespace baton {

/// A matrix in memory that somebody else owns.
struct BlockView {
  std::span<const std::byte> data;  // rows * row_bytes(type, cols) bytes, at any address
  BlockType type = BlockType::q8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  // a multiple of format_of(type).values

  const std::byte* row(std::int64_t i) const { return data.data() + i * row_bytes(type, cols); }
};

/// A matrix that need not be in memory as a whole: its rows are read in pieces, in order.
struct BlockRows {
  BlockType type = BlockType::q8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  // a multiple of format_of(type).values
  /// Fills `out`, which has the size of some rows, with rows from `first` on. May throw.
  std::function<void(std::span<std::byte> out, std::int64_t first)> read;
};
inline constexpr std::int64_t kPieceBytes = 1 << 22;  // of a piece, where rows are smaller

}  // namespace baton
