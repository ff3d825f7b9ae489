// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/block_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "engine/tensor/tensor.h"

namespace baton {

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  std::uint32_t exponent = (bits >> 10) & 0x1fu;
  std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact in f32
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

namespace {

constexpr std::array<BlockFormat, kBlockTypes> kFormats = {{
    {"F32", 0, 1, 4},
    {"F16", 1, 1, 2},
    {"BF16", 30, 1, 2},
    {"Q8_0", 8, 32, sizeof(BlockQ8_0), {{offsetof(BlockQ8_0, d), -1}}},
    {"Q4_0", 2, 32, sizeof(BlockQ4_0), {{offsetof(BlockQ4_0, d), -1}}},
    {"Q4_1", 3, 32, sizeof(BlockQ4_1), {{offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)}}},
    {"Q5_0", 6, 32, sizeof(BlockQ5_0), {{offsetof(BlockQ5_0, d), -1}}},
    {"Q5_1", 7, 32, sizeof(BlockQ5_1), {{offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)}}},
    {"Q2_K", 10, 256, sizeof(BlockQ2_K), {{offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)}}},
    {"Q3_K", 11, 256, sizeof(BlockQ3_K), {{offsetof(BlockQ3_K, d), -1}}},
    {"Q4_K", 12, 256, sizeof(BlockQ4_K), {{offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)}}},
    {"Q5_K", 13, 256, sizeof(BlockQ5_K), {{offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin)}}},
    {"Q6_K", 14, 256, sizeof(BlockQ6_K), {{offsetof(BlockQ6_K, d), -1}}},
    {"IQ4_NL", 20, 32, sizeof(BlockIQ4_NL), {{offsetof(BlockIQ4_NL, d), -1}}},
    {"IQ4_XS", 23, 256, sizeof(BlockIQ4_XS), {{offsetof(BlockIQ4_XS, d), -1}}},
    {"MXFP4", 39, 32, sizeof(BlockMXFP4)},
}};

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17);

// The order of roundings is part of the formats' meaning: scales are multiplied first, each product and sum is rounded
// to f32 (the project compiles without contraction of products into sums).

int half(const std::uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }  // value i of 32 in 16 bytes
int bit(const std::uint8_t* bits, int i) { return bits[i / 8] >> (i % 8) & 1; }

void read(float* out, const BlockQ8_0& block) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(block.q[i]) * d;
}

void read(float* out, const BlockQ4_0& block) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(half(block.q, i) - 8) * d;
}

void read(float* out, const BlockQ4_1& block) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(half(block.q, i)) * d + m;
}

void read(float* out, const BlockQ5_0& block) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>((half(block.q, i) | bit(block.high, i) << 4) - 16) * d;
}

void read(float* out, const BlockQ5_1& block) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(half(block.q, i) | bit(block.high, i) << 4) * d + m;
}

/// Value i of 256 in 64 bytes, two bits each, as Q2_K and Q3_K hold them.
int quarter(const std::uint8_t* q, int i) { return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

void read(float* out, const BlockQ2_K& block) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(block.scales[i / 16] & 15);
    const float minimum = dmin * static_cast<float>(block.scales[i / 16] >> 4);
    out[i] = scale * static_cast<float>(quarter(block.q, i)) - minimum;
  }
}

void read(float* out, const BlockQ3_K& block) {
  const float d = f16_to_f32(block.d);
  const std::array<std::int8_t, 16> scales = group_scales(block);
  for (int i = 0; i < 256; ++i) {
    const int q = quarter(block.q, i) | (block.high[i % 32] >> (i / 32) & 1) << 2;
    out[i] = d * static_cast<float>(scales[i / 16]) * static_cast<float>(q - 4);
  }
}

void read(float* out, const BlockQ4_K& block) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  const GroupScales groups = group_scales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int q = block.q[group / 2 * 32 + i % 32] >> (group % 2 * 4) & 15;
    const float minimum = dmin * static_cast<float>(groups.minimum[group]);
    out[i] = d * static_cast<float>(groups.scale[group]) * static_cast<float>(q) - minimum;
  }
}

void read(float* out, const BlockQ5_K& block) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  const GroupScales groups = group_scales(block.scales);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int low = block.q[group / 2 * 32 + i % 32] >> (group % 2 * 4) & 15;
    const int q = low | (block.high[i % 32] >> group & 1) << 4;
    const float minimum = dmin * static_cast<float>(groups.minimum[group]);
    out[i] = d * static_cast<float>(groups.scale[group]) * static_cast<float>(q) - minimum;
  }
}

void read(float* out, const BlockQ6_K& block) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 256; ++i) {
    const int begin = i / 128, at = i % 128;  // which half, and where in it
    const int low = block.low[begin * 64 + at % 64] >> (at / 64 * 4) & 15;
    const int high = block.high[begin * 32 + at % 32] >> (at / 32 * 2) & 3;
    const std::int8_t scale = block.scales[i / 16];
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

void read(float* out, const BlockIQ4_NL& block) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kNonlinear4[half(block.q, i)]);
}

void read(float* out, const BlockIQ4_XS& block) {
  const float d = f16_to_f32(block.d);
  const std::array<std::int8_t, 8> scales = group_scales(block);
  for (int i = 0; i < 256; ++i) {
    const int q = half(block.q + i / 32 * 16, i % 32);
    out[i] = d * static_cast<float>(scales[i / 32]) * static_cast<float>(kNonlinear4[q]);
  }
}

void read(float* out, const BlockMXFP4& block) {
  const float d = half_exponent(block.e);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kE2M1Doubled[half(block.q, i)]);
}

/// A block may lie at any address: rows of a file are aligned, blocks of 17 or 18 bytes in them are not.
template <class Block>
void read_blocks(std::span<float> out, const std::byte* blocks, std::int64_t values) {
  for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(values), blocks += sizeof(Block)) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    read(out.data() + i, block);
  }
}

template <class Value, class Convert>
void read_values(std::span<float> out, const std::byte* blocks, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Value value;
    std::memcpy(&value, blocks + i * sizeof(Value), sizeof(Value));
    out[i] = convert(value);
  }
}

}  // namespace

const BlockFormat& format_of(BlockType type) { return kFormats.at(static_cast<std::size_t>(type)); }

std::optional<BlockType> block_type_of(std::uint32_t id) {
  const auto* found = std::ranges::find(kFormats, id, &BlockFormat::id);
  if (found == kFormats.end()) return std::nullopt;
  return static_cast<BlockType>(found - kFormats.begin());
}

std::int64_t first_infinite_block(std::span<const std::byte> blocks, BlockType type) {
  constexpr int kLargestExponent = 252;  // of MXFP4: 12 * 2^(253 - 128) is beyond f32
  const BlockFormat& format = format_of(type);
  const auto count = static_cast<std::int64_t>(blocks.size()) / format.bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    if (type == BlockType::mxfp4) {
      if (std::to_integer<int>(blocks[static_cast<std::size_t>(i * format.bytes)]) > kLargestExponent) return i;
      continue;
    }
    for (const std::int16_t at : format.scales) {
      if (at < 0) continue;
      std::uint16_t half_bits;
      std::memcpy(&half_bits, blocks.data() + i * format.bytes + at, sizeof(half_bits));
      if ((half_bits & 0x7c00) == 0x7c00) return i;
    }
  }
  return -1;
}

std::int64_t row_bytes(BlockType type, std::int64_t values) {
  const BlockFormat& format = format_of(type);
  return values / format.values * format.bytes;
}

void dequantize(std::span<float> out, std::span<const std::byte> blocks, BlockType type) {
  const BlockFormat& format = format_of(type);
  const auto count = static_cast<std::int64_t>(out.size());
  if (count % format.values != 0 || static_cast<std::int64_t>(blocks.size()) < row_bytes(type, count)) {
    throw std::invalid_argument(
        fmt::format("dequantize: {} bytes of {} do not hold {} values", blocks.size(), format.name, out.size()));
  }
  const std::byte* data = blocks.data();
  const std::int64_t values = format.values;
  switch (type) {
    case BlockType::f32:
      return read_values<float>(out, data, [](float value) { return value; });
    case BlockType::f16:
      return read_values<std::uint16_t>(out, data, f16_to_f32);
    case BlockType::bf16:
      return read_values<std::uint16_t>(out, data, bf16_to_f32);
    case BlockType::q8_0:
      return read_blocks<BlockQ8_0>(out, data, values);
    case BlockType::q4_0:
      return read_blocks<BlockQ4_0>(out, data, values);
    case BlockType::q4_1:
      return read_blocks<BlockQ4_1>(out, data, values);
    case BlockType::q5_0:
      return read_blocks<BlockQ5_0>(out, data, values);
    case BlockType::q5_1:
      return read_blocks<BlockQ5_1>(out, data, values);
    case BlockType::q2_k:
      return read_blocks<BlockQ2_K>(out, data, values);
    case BlockType::q3_k:
      return read_blocks<BlockQ3_K>(out, data, values);
    case BlockType::q4_k:
      return read_blocks<BlockQ4_K>(out, data, values);
    case BlockType::q5_k:
      return read_blocks<BlockQ5_K>(out, data, values);
    case BlockType::q6_k:
      return read_blocks<BlockQ6_K>(out, data, values);
    case BlockType::iq4_nl:
      return read_blocks<BlockIQ4_NL>(out, data, values);
    case BlockType::iq4_xs:
      return read_blocks<BlockIQ4_XS>(out, data, values);
    case BlockType::mxfp4:
      return read_blocks<BlockMXFP4>(out, data, values);
  }
}

GroupScales group_scales(const std::uint8_t (&packed)[12]) {
  // Bytes 0 to 3: scales of groups 0 to 3, bytes 4 to 7: their minima, 6 bits each. Bytes 8 to 11: the low 4 bits of
  // scales and minima of groups 4 to 7, whose high 2 bits are the high bits of bytes 0 to 7.
  GroupScales groups{};
  for (int i = 0; i < 4; ++i) {
    groups.scale[i] = packed[i] & 63;
    groups.minimum[i] = packed[4 + i] & 63;
    groups.scale[4 + i] = static_cast<std::uint8_t>((packed[8 + i] & 15) | packed[i] >> 6 << 4);
    groups.minimum[4 + i] = static_cast<std::uint8_t>(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
  }
  return groups;
}

std::array<std::int8_t, 16> group_scales(const BlockQ3_K& block) {
  // Bytes 0 to 7 hold the low 4 bits of groups i and i + 8, bytes 8 to 11 the high 2 bits of groups i, i + 4, ...
  std::array<std::int8_t, 16> scales{};
  for (int g = 0; g < 16; ++g) {
    const int low = block.scales[g % 8] >> (g / 8 * 4) & 15;
    const int high = block.scales[8 + g % 4] >> (g / 4 * 2) & 3;
    scales[static_cast<std::size_t>(g)] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
  return scales;
}

std::array<std::int8_t, 8> group_scales(const BlockIQ4_XS& block) {
  std::array<std::int8_t, 8> scales{};
  for (int g = 0; g < 8; ++g) {
    const int low = block.scales_l[g / 2] >> (g % 2 * 4) & 15;
    const int high = block.scales_h >> (2 * g) & 3;
    scales[static_cast<std::size_t>(g)] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
  return scales;
}

float half_exponent(std::uint8_t e) {
  // The exponent field of 2^(e - 128) is e - 1; below that the value is subnormal, and its bit stands in the mantissa.
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

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

template <class Scales>
void open_scales(OpenBlock& out, const Scales& scales) {
  for (std::size_t g = 0; g < std::size(scales); ++g) out.scales[g] = static_cast<std::uint8_t>(scales[g]);
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
  open_scales(out, block.scales);
  out.factor = block.d;
}

/// 256 codes of two bits, in 64 bytes.
void open_quarters(std::uint8_t* codes, const std::uint8_t* q) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) codes[half * 128 + quarter * 32 + i] = q[half * 32 + i] >> (quarter * 2) & 3;
    }
  }
}
void open(OpenBlock& out, const BlockQ2_K& block) {
  open_quarters(out.codes, block.q);
  open_scales(out, block.scales);
  out.factor = block.d;
  out.minimum = block.dmin;
}
void open(OpenBlock& out, const BlockQ3_K& block) {
  open_quarters(out.codes, block.q);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      out.codes[g * 32 + i] |= static_cast<std::uint8_t>((block.high[i] >> g & 1) << 2);
    }
  }
  open_scales(out, group_scales(block));
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockIQ4_NL& block) {
  open_halves(out.codes, block.q);
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockIQ4_XS& block) {
  for (int g = 0; g < 8; ++g) open_halves(out.codes + g * 32, block.q + g * 16);
  open_scales(out, group_scales(block));
  out.factor = block.d;
}
void open(OpenBlock& out, const BlockMXFP4& block) {
  open_halves(out.codes, block.q);
  out.scales[0] = block.e;
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
    case BlockType::q2_k:
      return open_as<BlockQ2_K>(out, block);
    case BlockType::q3_k:
      return open_as<BlockQ3_K>(out, block);
    case BlockType::iq4_nl:
      return open_as<BlockIQ4_NL>(out, block);
    case BlockType::iq4_xs:
      return open_as<BlockIQ4_XS>(out, block);
    case BlockType::mxfp4:
      return open_as<BlockMXFP4>(out, block);
    default:
      return open_as<BlockQ8_0>(out, block);
  }
}

}  // namespace baton
