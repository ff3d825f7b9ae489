// SPDX-License-Identifier: Apache-2.0
// A matrix of quantised blocks that somebody else owns, as a GGUF file holds it: row after row, no padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/tensor/block_types.h"

namespace baton {

struct BlockView {
  std::span<const std::byte> data;  // rows * row_bytes(type, cols) bytes, at any address
  BlockType type = BlockType::q8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  // a multiple of format_of(type).values

  const std::byte* row(std::int64_t i) const { return data.data() + i * row_bytes(type, cols); }
};

}  // namespace baton
