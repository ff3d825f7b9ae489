// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/open_block.h"

#include <cstring>

namespace baton {
namespace {

/// 32 codes in 16 bytes: the low halves are the first 16.
void open_halves(std::uint8_t* codes, const std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = q[i] & 15;
    codes[i + 16] = q[i] >> 4;
  }
}

/// Bit i of `high` becomes bit 4 of code i: eight codes at a time, in the bytes of a word.
void open_fifth_bit(std::uint8_t* codes, const std::uint8_t* high) {
  constexpr std::uint64_t kBitOfByte = 0x8040201008040201, kTopBits = 0x8080808080808080;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t bits = std::uint64_t{high[i]} * 0x0101010101010101 & kBitOfByte;
    const std::uint64_t fifth = (bits | ((bits & ~kTopBits) + ~kTopBits)) & kTopBits;  // of bytes that are not zero
    std::uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, sizeof(eight));
    eight |= fifth >> 3;
    std::memcpy(codes + 8 * i, &eight, sizeof(eight));
  }
}

void open(OpenBlock& out, const BlockQ8_0& block) {
  std::memcpy(out.codes, block.q, sizeof(block.q));
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockQ4_0& block) {
  open_halves(out.codes, block.q);
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockQ4_1& block) {
  open_halves(out.codes, block.q);
  out.factor = block.d;
  out.minimum = block.m;
}
void open(OpenBlock& out, const BlockQ5_0& block) {
  open_halves(out.codes, block.q);
  open_fifth_bit(out.codes, block.high);
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockQ5_1& block) {
  open_halves(out.codes, block.q);
  open_fifth_bit(out.codes, block.high);
  out.factor = block.d;
  out.minimum = block.m;
}

template <class Block>
void open_groups(OpenBlock& out, const Block& block) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t both = block.q[pair * 32 + i];
      out.codes[pair * 64 + i] = both & 15;
      out.codes[pair * 64 + 32 + i] = both >> 4;
    }
  }
  const GroupScales groups = group_scales(block.scales);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = groups.scale[g];
    out.minimums[g] = groups.minimum[g];
  }
  out.factor = block.d;
  out.minimum = block.dmin;
}
void open(OpenBlock& out, const BlockQ4_K& block) { open_groups(out, block); }
void open(OpenBlock& out, const BlockQ5_K& block) {
  open_groups(out, block);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      out.codes[g * 32 + i] |= static_cast<std::uint8_t>((block.high[i] >> g & 1) << 4);
    }
  }
}
void open(OpenBlock& out, const BlockQ6_K& block) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::uint8_t* codes = out.codes + half * 128 + quarter * 32;
      const std::uint8_t* low = block.low + half * 64 + quarter % 2 * 32;
      const std::uint8_t* high = block.high + half * 32;
      for (int i = 0; i < 32; ++i) {
        codes[i] = static_cast<std::uint8_t>((low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4);
      }
    }
  }
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<std::uint8_t>(block.scales[g]);
  out.factor = block.d;
}

template <class Block>
void open_as(OpenBlock& out, const std::byte* data) {
  Block block;
  std::memcpy(&block, data, sizeof(block));
  open(out, block);
}

}  // namespace

void open_block(OpenBlock& out, const std::byte* block, BlockType type) {
  switch (type) {
    case BlockType::q4_0:
      return open_as<BlockQ4_0>(out, block);
    case BlockType::q4_1:
      return open_as<BlockQ4_1>(out, block);
    case BlockType::q5_0:
      return open_as<BlockQ5_0>(out, block);
    case BlockType::q5_1:
      return open_as<BlockQ5_1>(out, block);
    case BlockType::q4_k:
      return open_as<BlockQ4_K>(out, block);
    case BlockType::q5_k:
      return open_as<BlockQ5_K>(out, block);
    case BlockType::q6_k:
      return open_as<BlockQ6_K>(out, block);
    default:
      return open_as<BlockQ8_0>(out, block);
  }
}

}  // namespace baton
