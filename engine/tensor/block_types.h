// SPDX-License-Identifier: Apache-2.0
// The formats in which GGUF files store weights: a row of a matrix is a chain of blocks, each of a fixed number of
// values that share scales. The layouts are those of the files, little-endian; the values are what
// dequantize() computes: scalar code written to be read, the reference of every faster kernel. docs/models.md lists
// which formats the engine loads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace baton {

static_assert(std::endian::native == std::endian::little, "block formats are read where they lie, little-endian");

enum class BlockType : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
};
inline constexpr std::int32_t kBlockTypes = 16;

struct BlockFormat {
  std::string_view name;                          // as in file names: "Q4_K"
  std::uint32_t id;                               // the number of the type in a GGUF file
  std::int64_t values;                            // per block
  std::int64_t bytes;                             // per block
  std::array<std::int16_t, 2> scales = {-1, -1};  // bytes at which a block's f16 scales begin; -1: it has no such
};

const BlockFormat& format_of(BlockType type);

/// The type that a GGUF file means by a number; empty: a type that the engine does not load.
std::optional<BlockType> block_type_of(std::uint32_t id);

/// Bytes of a row of that many values, a multiple of format_of(type).values.
std::int64_t row_bytes(BlockType type, std::int64_t values);

/// Index of the first block that has a scale which is infinite or NaN, or, in MXFP4, so large that values may be; -1:
/// all are finite. `type` is quantised.
std::int64_t first_infinite_block(std::span<const std::byte> blocks, BlockType type);

/// Writes the first out.size() values of the blocks; out.size() is a multiple of format_of(type).values. Throws
/// std::invalid_argument where `blocks` holds fewer or out.size() is no such multiple.
void dequantize(std::span<float> out, std::span<const std::byte> blocks, BlockType type);

// The layouts. `d` and other 16-bit scales are f16 bits. Where 4-bit quants of 32 values lie in 16 bytes, byte i holds
// value i in its low half and value i + 16 in its high half.

struct BlockQ8_0 {  // value = q * d
  std::uint16_t d;
  std::int8_t q[32];
};

struct BlockQ4_0 {  // value = (q - 8) * d
  std::uint16_t d;
  std::uint8_t q[16];
};

struct BlockQ4_1 {  // value = q * d + m
  std::uint16_t d;
  std::uint16_t m;
  std::uint8_t q[16];
};

struct BlockQ5_0 {  // value = (q - 16) * d; bit i of `high`, read as one little-endian number, is bit 4 of value i
  std::uint16_t d;
  std::uint8_t high[4];
  std::uint8_t q[16];
};

struct BlockQ5_1 {  // value = q * d + m
  std::uint16_t d;
  std::uint16_t m;
  std::uint8_t high[4];
  std::uint8_t q[16];
};

// The K formats: 256 values in groups with scales of their own, which are quantised too.

struct BlockQ2_K {          // 16 groups of 16: value = d * (scales[g] & 15) * q - dmin * (scales[g] >> 4)
  std::uint8_t scales[16];  // low half scale, high half minimum
  std::uint8_t q[64];  // half h (of 128 values): byte 32 h + i holds values i, 32 + i, 64 + i, 96 + i from low to high
  std::uint16_t d;
  std::uint16_t dmin;
};

struct BlockQ3_K {          // 16 groups of 16: value = d * (scale - 32) * (q - 4)
  std::uint8_t high[32];    // bit g of byte i is bit 2 of value 32 g + i
  std::uint8_t q[64];       // bits 0 and 1, as in Q2_K
  std::uint8_t scales[12];  // 6 bits each, see group_scales(const BlockQ3_K&)
  std::uint16_t d;
};

struct BlockQ4_K {  // 8 groups of 32: value = d * scale * q - dmin * minimum
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t scales[12];  // 6 bits each, see group_scales(scales)
  std::uint8_t q[128];  // byte 32 p + i holds value i of group 2 p in its low half, of group 2 p + 1 in its high half
};

struct BlockQ5_K {  // as Q4_K with a fifth bit
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t high[32];  // bit g of byte i is bit 4 of value i of group g
  std::uint8_t q[128];
};

struct BlockQ6_K {        // 16 groups of 16: value = d * scales[g] * (q - 32)
  std::uint8_t low[128];  // half h: byte 64 h + i (i below 64) holds values i and 64 + i of the half
  std::uint8_t high[64];  // half h: byte 32 h + i holds bits 4 and 5 of values i, 32 + i, 64 + i, 96 + i of the half
  std::int8_t scales[16];
  std::uint16_t d;
};

struct BlockIQ4_NL {  // value = d * kNonlinear4[q]
  std::uint16_t d;
  std::uint8_t q[16];
};

struct BlockIQ4_XS {  // 8 groups of 32, each laid out as the quants of IQ4_NL: value = d * (scale - 32) *
                      // kNonlinear4[q]
  std::uint16_t d;
  std::uint16_t scales_h;    // bits 4 and 5 of group g's scale are bits 2 g and 2 g + 1
  std::uint8_t scales_l[4];  // bits 0 to 3, two groups a byte
  std::uint8_t q[128];
};

struct BlockMXFP4 {  // value = half_exponent(e) * kE2M1Doubled[q]
  std::uint8_t e;    // power of two, biased by 127
  std::uint8_t q[16];
};

/// The values of a 4-bit quant of IQ4_NL and IQ4_XS.
inline constexpr std::array<std::int8_t, 16> kNonlinear4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                            1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of the 4-bit float with two exponent bits and one of mantissa (0, 0.5, 1, 1.5, 2, 3, 4, 6).
inline constexpr std::array<std::int8_t, 16> kE2M1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct GroupScales {
  std::uint8_t scale[8];
  std::uint8_t minimum[8];
};
/// Of Q4_K and Q5_K, from their 12 bytes: 6 bits each.
GroupScales group_scales(const std::uint8_t (&packed)[12]);
/// Of Q3_K, less the 32 that they are stored with: -32 to 31.
std::array<std::int8_t, 16> group_scales(const BlockQ3_K& block);
/// Of IQ4_XS, less the 32 that they are stored with.
std::array<std::int8_t, 8> group_scales(const BlockIQ4_XS& block);
/// Half of 2^(e - 127), exact also where that is subnormal.
float half_exponent(std::uint8_t e);

// A matrix of quantised blocks as a GGUF file holds it: row after row, no padding.

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

// Block formats as products of integers see them: codes of a few bits, and scales that groups of codes share.

/// What 4-bit codes are looked up in: kNonlinear4 or kE2M1Doubled.
enum class CodeTable : std::uint8_t { none, nonlinear4, e2m1 };

struct CodeFormat {
  int bits = 8;                       // 2 to 6: unsigned codes; 8: signed quants
  int offset = 0;                     // quant = code - offset
  int group = 32;                     // quants that share a scale: 32 or 16
  bool minimums = false;              // value = quant * scale + minimum
  CodeTable table = CodeTable::none;  // quant = table[code]
  bool operator==(const CodeFormat&) const = default;
};

enum class ScaleType : std::uint8_t {
  f16,
  integers,   // K formats and IQ4_XS: of up to 8 bits, times an f16 factor for each 256 values
  exponents,  // half_exponent() of 8 bits
};

struct ScaledCodes {
  CodeFormat codes;
  ScaleType scales = ScaleType::f16;

  constexpr bool integer_scales() const { return scales == ScaleType::integers; }
  /// Q2_K: a group's scale and minimum are the low and the high half of a byte.
  constexpr bool half_bytes() const { return codes.minimums && codes.group == 16; }
};

/// Calls fn with std::integral_constant<BlockType, type> and returns true, or returns false: the type is not quantised.
template <class Fn>
constexpr bool with_code_type(BlockType type, const Fn& fn) {
  const auto call = [&]<BlockType kType>(std::integral_constant<BlockType, kType> constant) {
    fn(constant);
    return true;
  };
  switch (type) {
    case BlockType::q8_0:
      return call(std::integral_constant<BlockType, BlockType::q8_0>());
    case BlockType::q4_0:
      return call(std::integral_constant<BlockType, BlockType::q4_0>());
    case BlockType::q4_1:
      return call(std::integral_constant<BlockType, BlockType::q4_1>());
    case BlockType::q5_0:
      return call(std::integral_constant<BlockType, BlockType::q5_0>());
    case BlockType::q5_1:
      return call(std::integral_constant<BlockType, BlockType::q5_1>());
    case BlockType::q4_k:
      return call(std::integral_constant<BlockType, BlockType::q4_k>());
    case BlockType::q5_k:
      return call(std::integral_constant<BlockType, BlockType::q5_k>());
    case BlockType::q6_k:
      return call(std::integral_constant<BlockType, BlockType::q6_k>());
    case BlockType::q2_k:
      return call(std::integral_constant<BlockType, BlockType::q2_k>());
    case BlockType::q3_k:
      return call(std::integral_constant<BlockType, BlockType::q3_k>());
    case BlockType::iq4_nl:
      return call(std::integral_constant<BlockType, BlockType::iq4_nl>());
    case BlockType::iq4_xs:
      return call(std::integral_constant<BlockType, BlockType::iq4_xs>());
    case BlockType::mxfp4:
      return call(std::integral_constant<BlockType, BlockType::mxfp4>());
    default:
      return false;
  }
}

/// Whether weights of the type are codes with scales; else they are floats.
constexpr bool is_quantized(BlockType type) {
  return with_code_type(type, [](auto) {});
}

/// `type` is quantised.
constexpr ScaledCodes scaled_codes(BlockType type) {
  switch (type) {
    case BlockType::q4_0:
      return {{4, 8, 32, false}};
    case BlockType::q4_1:
      return {{4, 0, 32, true}};
    case BlockType::q5_0:
      return {{5, 16, 32, false}};
    case BlockType::q5_1:
      return {{5, 0, 32, true}};
    case BlockType::q2_k:
      return {{2, 0, 16, true}, ScaleType::integers};
    case BlockType::q3_k:
      return {{3, 4, 16, false}, ScaleType::integers};
    case BlockType::q4_k:
      return {{4, 0, 32, true}, ScaleType::integers};
    case BlockType::q5_k:
      return {{5, 0, 32, true}, ScaleType::integers};
    case BlockType::q6_k:
      return {{6, 32, 16, false}, ScaleType::integers};
    case BlockType::iq4_nl:
      return {{4, 0, 32, false, CodeTable::nonlinear4}};
    case BlockType::iq4_xs:
      return {{4, 0, 32, false, CodeTable::nonlinear4}, ScaleType::integers};
    case BlockType::mxfp4:
      return {{4, 0, 32, false, CodeTable::e2m1}, ScaleType::exponents};
    default:
      return {{8, 0, 32, false}};
  }
}

// A block of quantised weights taken apart, from which backends make the layouts of their own kernels.

/// Only the first format_of(type).values codes are set, and of the scales those that the format has.
struct OpenBlock {
  std::uint8_t codes[256];  // one for each value, in their order; Q8_0: the bytes of signed quants
  std::uint16_t factor;     // f16: the scale, or the factor of integer scales
  std::uint16_t minimum;    // f16: the minimum, or the factor of integer minimums, which are subtracted
  std::uint8_t scales[16];  // of groups, in their order; Q2_K: with their minimums, as stored; without minimums: the
                            // bytes of signed scales; MXFP4: the exponent
  std::uint8_t minimums[8];
};

/// `type` is quantised; `block` holds format_of(type).bytes bytes, at any address.
void open_block(OpenBlock& out, const std::byte* block, BlockType type);

}  // namespace baton
