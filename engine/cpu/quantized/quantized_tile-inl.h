// SPDX-License-Identifier: Apache-2.0
// The product of quantised weights: C[rows, 32] += A[rows, 256] * a chunk of a panel (quantized_panel.h). For each
// block of 32 inputs an integer sum, exact on every target, then one chain in f32 over the blocks, in ascending order:
//   acc = fma(float(sum of code * quant) * activation scale, weight scale, acc)     for each group of 16 or 32 codes
//   acc = fma(minimum, activation scale * sum of quants, acc)      then for each group where the format has minimums
//
// Codes with a table are looked up where they are taken apart. MXFP4's quants then count as codes of 5 bits that are 16
// too large; those of IQ4 need all eight bits of a signed byte, and are multiplied as those of Q8_0.
//
// Bounds of the 16-bit sums of pairs, |quant| <= 127, each lane half of a sum of four products per row:
//   4 bits           8 rows: 16 codes of at most 15: 30,480
//   5 bits           4 rows: 8 codes of at most 31: 31,496
//   5 bits - 16      8 rows, from -16 * sum of quants: intermediate sums may wrap, the last is at most
//                    16 * 16 * 127 = 32,512
//   6 bits - 32      4 rows, from -32 * sum of quants: the last is at most 8 * 32 * 127 = 32,512
//   2, 3 bits - 4    4 rows, less than those
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_QUANTIZED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_QUANTIZED_TILE_INL_H_
#undef BATON_CPU_QUANTIZED_TILE_INL_H_
#else
#define BATON_CPU_QUANTIZED_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/cpu/quantized/quantized.h"
#include "engine/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

// Dot products of bytes, four to a 32-bit lane, exact on every target. Two ways:
//   pairs  processors without dot product instructions: products of codes by signed bytes are added in pairs to 16 bits
//          (without saturation, see the bounds above) and those later to 32 bits;
//   quads  four products are added to 32 bits at once: VNNI of either encoding, SDOT of NEON, and plain code.

using WordTag = hn::CappedTag<std::uint32_t, 16>;
using IntTag = hn::CappedTag<std::int32_t, 16>;
using ByteVec = hn::Vec<WordTag>;  // four bytes to a lane
using IntVec = hn::Vec<IntTag>;

// Targets of later releases of Highway are better ones of these: they have all of their instructions.
#undef BATON_DOT_AVX512
#undef BATON_DOT_AVX2
#undef BATON_DOT_NEON
#define BATON_DOT_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#define BATON_DOT_AVX2 (HWY_TARGET == HWY_AVX2)
#define BATON_DOT_NEON (HWY_ARCH_ARM_A64 && HWY_TARGET < HWY_EMU128)

/// The compiler may neither reorder sums across this nor keep the terms of several waiting: left alone, GCC multiplies
/// a whole block first, adds later, and spills what lies between.
template <class V>
HWY_INLINE void in_this_order(V& sum) {
#if BATON_DOT_AVX512
  asm("" : "+v"(sum.raw));
#elif BATON_DOT_AVX2
  asm("" : "+x"(sum.raw));
#elif BATON_DOT_NEON
  asm("" : "+w"(sum.raw));
#else
  (void)sum;
#endif
}

/// Does the processor add four products at once? The compiler need not know of the instruction.
HWY_INLINE bool adds_quads(DotInstructions has) {
  return BATON_DOT_AVX512 ? has.avx512_vnni : BATON_DOT_AVX2 ? has.avx_vnni : BATON_DOT_NEON ? has.neon_sdot : true;
}

#if BATON_DOT_AVX512 || BATON_DOT_AVX2
inline constexpr bool kHasPairs = true;
using PairTag = hn::CappedTag<std::int16_t, 32>;
using PairVec = hn::Vec<PairTag>;

/// Unsigned codes by signed quants.
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants) {
#if BATON_DOT_AVX512
  return PairVec{_mm512_maddubs_epi16(codes.raw, quants.raw)};
#else
  return PairVec{_mm256_maddubs_epi16(codes.raw, quants.raw)};
#endif
}

HWY_INLINE IntVec fold_pairs(PairVec pairs) {
#if BATON_DOT_AVX512
  return IntVec{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#else
  return IntVec{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#endif
}

/// acc + codes * quants.
HWY_INLINE IntVec add_quads(IntVec acc, ByteVec codes, ByteVec quants) {
#if BATON_DOT_AVX512
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(codes.raw), "v"(quants.raw));
#else
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc.raw) : "x"(codes.raw), "x"(quants.raw));
#endif
  return acc;
}

/// acc + weights * quants, both signed, where the weights are larger by kSignedOffset. Quants are above -128.
template <Dot kDot>
HWY_INLINE IntVec add_signed(IntVec acc, ByteVec weights, ByteVec quants) {
  if constexpr (kDot == Dot::quads) {  // the kernel starts from -128 times the sum of the quants
    return add_quads(acc, weights, quants);
  } else {  // |weight| is at most 128 and a pair of products at most 2 * 128 * 127 = 32,512
#if BATON_DOT_AVX512
    const __mmask64 negative = _mm512_movepi8_mask(weights.raw);
    const ByteVec turned{_mm512_mask_sub_epi8(quants.raw, negative, _mm512_setzero_si512(), quants.raw)};
    const ByteVec magnitude{_mm512_abs_epi8(weights.raw)};
#else
    const ByteVec turned{_mm256_sign_epi8(quants.raw, weights.raw)};
    const ByteVec magnitude{_mm256_abs_epi8(weights.raw)};
#endif
    return hn::Add(acc, fold_pairs(multiply_pairs(magnitude, turned)));
  }
}

/// What add_signed takes for a signed weight is as much larger.
template <Dot kDot>
inline constexpr int kSignedOffset = kDot == Dot::quads ? 128 : 0;

#elif BATON_DOT_NEON
inline constexpr bool kHasPairs = true;
using PairTag = hn::CappedTag<std::int16_t, 32>;
using PairVec = hn::Vec<PairTag>;

/// Signed bytes by signed quants; codes are below 128.
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants) {
  const int8x16_t c = vreinterpretq_s8_u32(codes.raw), q = vreinterpretq_s8_u32(quants.raw);
  return PairVec{vpaddq_s16(vmull_s8(vget_low_s8(c), vget_low_s8(q)), vmull_high_s8(c, q))};
}

HWY_INLINE IntVec fold_pairs(PairVec pairs) { return IntVec{vpaddlq_s16(pairs.raw)}; }

/// acc + codes * quants: sdot acc.4s, codes.16b, quants.16b. As a number, because GNU as knows the instruction only
/// where the whole file is for Armv8.2; .Lbaton_v7 is 7.
HWY_INLINE IntVec add_quads(IntVec acc, ByteVec codes, ByteVec quants) {
  asm(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
      ".equ .Lbaton_v\\n, \\n\n"
      ".endr\n"
      ".inst 0x4e809400 | .Lbaton_%2 << 16 | .Lbaton_%1 << 5 | .Lbaton_%0"
      : "+w"(acc.raw)
      : "w"(codes.raw), "w"(quants.raw));
  return acc;
}

/// acc + weights * quants. Quants are above -128: a pair of products is at most 2 * 128 * 127 = 32,512.
template <Dot kDot>
HWY_INLINE IntVec add_signed(IntVec acc, ByteVec weights, ByteVec quants) {
  if constexpr (kDot == Dot::quads) return add_quads(acc, weights, quants);
  return hn::Add(acc, fold_pairs(multiply_pairs(weights, quants)));
}
template <Dot kDot>
inline constexpr int kSignedOffset = 0;

#else
inline constexpr bool kHasPairs = false;
using PairVec = IntVec;  // not used
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants);
HWY_INLINE IntVec fold_pairs(PairVec pairs);

HWY_INLINE IntVec add_quads(IntVec acc, ByteVec weights, ByteVec quants) {
  constexpr std::size_t kWords = hn::MaxLanes(IntTag());
  std::uint32_t w[kWords], q[kLanes];
  std::int32_t sums[kWords];
  hn::StoreU(weights, WordTag(), w);
  hn::StoreU(quants, WordTag(), q);
  hn::StoreU(acc, IntTag(), sums);
  const auto byte = [](std::uint32_t word, int j) { return static_cast<std::int8_t>(word >> (8 * j)); };
  for (std::size_t i = 0; i < kWords; ++i) {
    for (int j = 0; j < 4; ++j) sums[i] += byte(w[i], j) * byte(q[i], j);
  }
  return hn::LoadU(IntTag(), sums);
}

template <Dot kDot>
HWY_INLINE IntVec add_signed(IntVec acc, ByteVec weights, ByteVec quants) {
  return add_quads(acc, weights, quants);
}
template <Dot kDot>
inline constexpr int kSignedOffset = 0;
#endif

inline constexpr std::size_t kUnitBytes = 4 * kWidth;  // of a vector of codes: four of each of kWidth outputs
inline constexpr std::uint32_t kEveryByte = 0x01010101;

// Rows of activations that share a loaded vector of codes: two sums each, in half of 16 registers. Twice as many share
// codes that were not widened where there are 32 registers and sums need no second one: eight sequences of a model with
// 500 million parameters decode 20 to 25 % faster.
inline constexpr std::size_t kQuantRows = HWY_TARGET == HWY_SCALAR ? 1 : 4;
template <Dot kDot>
inline constexpr std::size_t kPackedRows = BATON_DOT_AVX512&& kDot == Dot::quads ? 8 : kQuantRows;

// Packed panels are prefetched this far ahead into the L1 cache, and farther ahead into the L2 cache, which has more
// requests in flight: one sequence decodes 1 to 27 % faster for the latter (Xeon; on another machine SmolLM2-135M
// behind 1,040 tokens 7 % more slowly), four sequences 5 to 12 %. What is prefetched at the end of a task belongs to
// another one.
inline constexpr std::int64_t kNearBytes = 2048;
inline constexpr std::int64_t kFarBytes = 8192;

HWY_INLINE ByteVec load_bytes(const std::uint8_t* data) {
  return hn::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(data));
}
HWY_INLINE void store_bytes(ByteVec bytes, std::uint8_t* out) {
  hn::StoreU(bytes, WordTag(), reinterpret_cast<std::uint32_t*>(out));
}
HWY_INLINE std::uint32_t load_word(const void* data) {
  std::uint32_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

/// Bits of every byte moved up by kShift (down where negative), those of `mask` kept.
template <int kShift>
HWY_INLINE ByteVec shifted_bits(ByteVec bytes, std::uint32_t mask) {
  const ByteVec kept = hn::Set(WordTag(), mask * kEveryByte);
  if constexpr (kShift > 0) return hn::And(hn::ShiftLeft<kShift>(bytes), kept);
  if constexpr (kShift < 0) return hn::And(hn::ShiftRight<-kShift>(bytes), kept);
  return hn::And(bytes, kept);
}

/// Do quants need all bits of a signed byte?
constexpr bool has_signed_bytes(const CodeFormat& format) {
  return format.bits == 8 || format.table == CodeTable::nonlinear4;
}

/// The offset of the codes of a format when they have a byte each.
constexpr int wide_offset(const CodeFormat& format) { return format.table == CodeTable::e2m1 ? 16 : format.offset; }

/// Bytes that stand for the codes of a table: its quants plus `offset`.
template <CodeTable kTable>
struct TableBytes {
  alignas(16) std::uint8_t bytes[16];

  explicit constexpr TableBytes(int offset) : bytes() {
    for (std::size_t i = 0; i < 16; ++i) {
      const int quant = kTable == CodeTable::e2m1 ? kE2M1Doubled[i] : kNonlinear4[i];
      bytes[i] = static_cast<std::uint8_t>(quant + offset);
    }
  }
};

template <CodeTable kTable, int kOffset>
HWY_INLINE ByteVec looked_up(ByteVec codes) {
  static constexpr TableBytes<kTable> kBytes(kOffset);
#if HWY_TARGET == HWY_SCALAR
  std::uint32_t word = hn::GetLane(codes), found = 0;
  for (int i = 0; i < 32; i += 8) found |= std::uint32_t{kBytes.bytes[word >> i & 15]} << i;
  return hn::Set(WordTag(), found);
#else
  const hn::Repartition<std::uint8_t, WordTag> bytes;
  const auto table = hn::LoadDup128(bytes, kBytes.bytes);
  return hn::BitCast(WordTag(), hn::TableLookupBytes(table, hn::BitCast(bytes, codes)));
#endif
}

/// Row kRow of a block's packed codes, a byte each: outputs of unit u and those 16 further.
template <CodeFormat kFormat, int kRow>
HWY_INLINE void unpack_codes(const std::uint8_t* block, std::size_t u, ByteVec& low, ByteVec& high) {
  const std::uint8_t* bits = block + u * kUnitBytes;
  if constexpr (kFormat.bits >= 4) {
    const ByteVec both = load_bytes(bits + kRow * 64);
    low = shifted_bits<0>(both, 15);
    high = shifted_bits<-4>(both, 15);
    bits += 512;
  } else {
    low = high = hn::Zero(WordTag());
  }
  constexpr int kFrom = kFormat.bits >= 4 ? 4 : 0;  // the first bit that is missing
  if constexpr ((kFormat.bits & 2) != 0) {
    constexpr int kPart = kRow / 4 * 128, kShift = kFrom - 2 * (kRow % 4);
    low = hn::Or(low, shifted_bits<kShift>(load_bytes(bits + kPart), 3u << kFrom));
    high = hn::Or(high, shifted_bits<kShift>(load_bytes(bits + kPart + 64), 3u << kFrom));
    bits += 256;
  }
  if constexpr ((kFormat.bits & 1) != 0) {
    constexpr int kBit = kFrom + (kFormat.bits & 2);
    low = hn::Or(low, shifted_bits<kBit - kRow>(load_bytes(bits), 1u << kBit));
    high = hn::Or(high, shifted_bits<kBit - kRow>(load_bytes(bits + 64), 1u << kBit));
  }
}

/// The same of packed codes or of those with a byte each, looked up if the format has a table. Signed bytes become
/// larger by kSigned, 0 or 128.
template <CodeFormat kFormat, int kRow, bool kPacked, int kSigned = 0>
HWY_INLINE void load_codes(const std::uint8_t* block, std::size_t u, ByteVec& low, ByteVec& high) {
  if constexpr (!kPacked || kFormat.bits == 8) {
    low = load_bytes(block + kRow * 128 + u * kUnitBytes);
    high = load_bytes(block + kRow * 128 + 64 + u * kUnitBytes);
    if constexpr (has_signed_bytes(kFormat) && kSigned != 0) {
      low = hn::Xor(low, hn::Set(WordTag(), 0x80808080u));
      high = hn::Xor(high, hn::Set(WordTag(), 0x80808080u));
    }
  } else {
    unpack_codes<kFormat, kRow>(block, u, low, high);
    if constexpr (kFormat.table != CodeTable::none) {
      constexpr int kOffset = has_signed_bytes(kFormat) ? kSigned : wide_offset(kFormat);
      low = looked_up<kFormat.table, kOffset>(low);
      high = looked_up<kFormat.table, kOffset>(high);
    }
  }
}

/// How the integer sums of a format are made: after every kRows rows of a block, pairs are added to 32 bits.
template <CodeFormat kFormat, Dot kDot>
struct Summing {
  static constexpr bool kSigned = has_signed_bytes(kFormat);
  static constexpr bool kPairs = kDot == Dot::pairs && !kSigned;
  static constexpr int kOffset = wide_offset(kFormat);
  static constexpr int kRows = kFormat.group == 16 || (kPairs && kFormat.bits == 5 && kFormat.offset == 0) ? 4 : 8;
  using Vec = std::conditional_t<kPairs, PairVec, IntVec>;

  /// Where a sum of rows [row, row + kRows) starts. -128 times the sum of quants is 8 times what -16 starts from, and
  /// -4 times an eighth of what -32 does.
  static HWY_INLINE Vec start(const ActivationChunk& x, std::int64_t block, int row) {
    const std::int32_t* starts = x.start[block];
    IntVec sum = hn::Zero(IntTag());
    if constexpr (kSigned) {
      if constexpr (kSignedOffset<kDot> == 128) sum = hn::ShiftLeft<3>(hn::Set(IntTag(), starts[1]));
    } else if constexpr (kOffset != 0) {
      sum = hn::Set(IntTag(), starts[kOffset == 8 ? 0 : kOffset == 16 ? 1 : 2 + row / 4]);
    }
    if constexpr (kPairs) {
      const auto pairs = hn::BitCast(hn::DFromV<PairVec>(), sum);
      return kOffset == 4 ? hn::ShiftRight<3>(pairs) : pairs;
    } else {
      return kOffset == 4 ? hn::ShiftRight<3>(sum) : sum;
    }
  }
  static HWY_INLINE void add(Vec& sum, ByteVec codes, ByteVec quants) {
    if constexpr (kPairs) {
      sum = hn::Add(sum, multiply_pairs(codes, quants));
      in_this_order(sum);
    } else if constexpr (kSigned) {
      sum = add_signed<kDot>(sum, codes, quants);
      in_this_order(sum);
    } else {
      sum = add_quads(sum, codes, quants);
    }
  }
  static HWY_INLINE IntVec total(Vec sum) {
    if constexpr (kPairs) {
      return fold_pairs(sum);
    } else {
      return sum;
    }
  }
};

HWY_INLINE void prefetch_line(const std::uint8_t* line) {
  __builtin_prefetch(line + kFarBytes, 0, 2);
  __builtin_prefetch(line + kNearBytes, 0, 3);
}

/// An eighth of the cache lines of a block with its scales, further on.
template <CodeFormat kFormat, int kRow>
HWY_INLINE void prefetch_row(const std::uint8_t* block) {
  constexpr int kLines = 2 * kFormat.bits + (kFormat.minimums && kFormat.group == 32 ? 2 : 1);
  if constexpr (kRow < kLines) prefetch_line(block + kRow * 64);
  if constexpr (kRow + 8 < kLines) prefetch_line(block + (kRow + 8) * 64);
  if constexpr (kRow + 16 < kLines) prefetch_line(block + (kRow + 16) * 64);
}

template <CodeFormat kFormat, Dot kDot, std::size_t kRows, bool kPacked, int kRow>
HWY_INLINE void add_row(typename Summing<kFormat, kDot>::Vec (&sums)[kRows][2], const ActivationChunk* x,
                        const std::uint8_t* block, std::size_t u, std::int64_t b) {
  if constexpr (kPacked) {
    if (u == 0) prefetch_row<kFormat, kRow>(block);
  }
  ByteVec low, high;
  load_codes<kFormat, kRow, kPacked, kSignedOffset<kDot>>(block, u, low, high);
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto quants = hn::Set(WordTag(), load_word(x[r].quants + b * kQuantBlock + 4 * kRow));
    Summing<kFormat, kDot>::add(sums[r][0], low, quants);
    Summing<kFormat, kDot>::add(sums[r][1], high, quants);
  }
}

/// totals[r] = sums of code * quant over rows [kFirst, kFirst + sizeof...(kRow)) of a block.
template <CodeFormat kFormat, Dot kDot, std::size_t kRows, bool kPacked, int kFirst, int... kRow>
HWY_INLINE void sum_rows(IntVec (&totals)[kRows][2], const ActivationChunk* x, const std::uint8_t* block, std::size_t u,
                         std::int64_t b, std::integer_sequence<int, kRow...>) {
  using Sums = Summing<kFormat, kDot>;
  typename Sums::Vec sums[kRows][2];
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = Sums::start(x[r], b, kFirst);
  (add_row<kFormat, kDot, kRows, kPacked, kFirst + kRow>(sums, x, block, u, b), ...);
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < kRows; ++r) {
    totals[r][0] = Sums::total(sums[r][0]);
    totals[r][1] = Sums::total(sums[r][1]);
  }
}

HWY_INLINE FloatVec load_halves(const std::byte* data) {
  const hn::Rebind<hwy::float16_t, Floats> half;
  return hn::PromoteTo(Floats(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(data)));
}
template <class Integer>
HWY_INLINE IntVec load_integers(const std::byte* data) {
  const hn::Rebind<Integer, Floats> narrow;
  return hn::PromoteTo(IntTag(), hn::LoadU(narrow, reinterpret_cast<const Integer*>(data)));
}
/// half_exponent() of each.
HWY_INLINE FloatVec load_exponents(const std::byte* data) {
  const IntVec bits = hn::ShiftLeft<23>(load_integers<std::uint8_t>(data));
  const IntVec whole = hn::Max(bits, hn::Set(IntTag(), 0x00400000));  // 2^-127 is subnormal
  return hn::Mul(hn::BitCast(Floats(), whole), hn::Set(Floats(), 0.5f));
}

/// Scales and minimums of a chunk of a panel as the panel holds them. Products of factors and integers are exact.
template <PanelFormat kFormat>
struct PackedScales {
  const std::byte* chunk;

  /// Of outputs [n, n + kWidth), for group `g` of block `b`.
  HWY_INLINE FloatVec scale(std::int64_t b, std::int64_t g, std::size_t n) const {
    if constexpr (kFormat.scales == ScaleType::f16) return load_halves(of_block(b) + 2 * n);
    if constexpr (kFormat.scales == ScaleType::exponents) return load_exponents(of_block(b) + n);
    IntVec integers = load_integers<std::int8_t>(of_block(b) + g * kPanel + n);
    if constexpr (kFormat.half_bytes()) integers = hn::And(integers, hn::Set(IntTag(), 15));
    return hn::Mul(load_halves(chunk + 2 * n), hn::ConvertTo(Floats(), integers));
  }
  HWY_INLINE FloatVec minimum(std::int64_t b, std::int64_t g, std::size_t n) const {
    if constexpr (kFormat.scales == ScaleType::f16) return load_halves(of_block(b) + 2 * kPanel + 2 * n);
    const IntVec integers = kFormat.half_bytes()
                                ? hn::ShiftRight<4>(load_integers<std::uint8_t>(of_block(b) + g * kPanel + n))
                                : load_integers<std::uint8_t>(of_block(b) + kPanel + n);
    return hn::Neg(hn::Mul(load_halves(chunk + 2 * kPanel + 2 * n), hn::ConvertTo(Floats(), integers)));
  }

 private:
  HWY_INLINE const std::byte* of_block(std::int64_t b) const {
    return chunk + kFormat.factor_bytes() + b * kFormat.block_bytes() + kFormat.code_bytes();
  }
};

/// The same as floats in memory, for many rows.
template <CodeFormat kFormat>
struct LoadedScales {
  const WideScales& values;

  HWY_INLINE FloatVec scale(std::int64_t b, std::int64_t g, std::size_t n) const {
    return hn::LoadU(Floats(), values.scale[b * (kQuantBlock / kFormat.group) + g] + n);
  }
  HWY_INLINE FloatVec minimum(std::int64_t b, std::int64_t g, std::size_t n) const {
    return hn::LoadU(Floats(), values.minimum[b * (kQuantBlock / kFormat.group) + g] + n);
  }
};

template <PanelFormat kFormat>
void widen_scales(WideScales& out, const std::byte* chunk, std::int64_t blocks) {
  const PackedScales<kFormat> packed{chunk};
  const Floats f;
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::size_t n = 0; n < kPanel; n += kWidth) {
      for (std::int64_t g = 0; g < kFormat.groups(); ++g) {
        const std::int64_t at = b * kFormat.groups() + g;
        hn::StoreU(packed.scale(b, g, n), f, out.scale[at] + n);
        if constexpr (kFormat.codes.minimums) hn::StoreU(packed.minimum(b, g, n), f, out.minimum[at] + n);
      }
    }
  }
}

/// c[r, output] = fma(total * activation scale, weight scale, c[r, output]) for the outputs of unit u, whose scales are
/// `low` and, 16 outputs further, `high`.
template <std::size_t kRows>
HWY_INLINE void add_scaled(float* c, const IntVec (&totals)[kRows][2], const ActivationChunk* x, std::int64_t b,
                           FloatVec low, FloatVec high, std::size_t u) {
  const Floats f;
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < kRows; ++r) {
    float* out = c + r * kPanel + u * kWidth;
    const FloatVec scale = hn::Set(f, x[r].scale[b]);
    hn::StoreU(hn::MulAdd(hn::Mul(hn::ConvertTo(f, totals[r][0]), scale), low, hn::LoadU(f, out)), f, out);
    hn::StoreU(hn::MulAdd(hn::Mul(hn::ConvertTo(f, totals[r][1]), scale), high, hn::LoadU(f, out + 16)), f, out + 16);
  }
}

/// The same with the minimums of group g of a block.
template <CodeFormat kFormat, std::size_t kRows>
HWY_INLINE void add_minimums(float* c, const ActivationChunk* x, std::int64_t b, std::int64_t g, FloatVec low,
                             FloatVec high, std::size_t u) {
  const Floats f;
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < kRows; ++r) {
    float* out = c + r * kPanel + u * kWidth;
    const FloatVec sum = hn::Set(f, kFormat.group == 16 ? x[r].half_sum[b][g] : x[r].sum[b]);
    hn::StoreU(hn::MulAdd(low, sum, hn::LoadU(f, out)), f, out);
    hn::StoreU(hn::MulAdd(high, sum, hn::LoadU(f, out + 16)), f, out + 16);
  }
}

/// c[kRows, 32] += x[kRows] * `blocks` blocks of a chunk, block_bytes apart, packed or with a byte for each code.
template <CodeFormat kFormat, Dot kDot, std::size_t kRows, bool kPacked, class Scales>
HWY_NOINLINE void multiply_chunk(float* HWY_RESTRICT c, const ActivationChunk* HWY_RESTRICT x,
                                 const std::uint8_t* HWY_RESTRICT codes, std::int64_t block_bytes, Scales scales,
                                 std::int64_t blocks) {
  constexpr int kSumRows = Summing<kFormat, kDot>::kRows;
  constexpr auto kSequence = std::make_integer_sequence<int, kSumRows>();
  for (std::int64_t b = 0; b < blocks; ++b, codes += block_bytes) {
    for (std::size_t u = 0; u < kUnitsPerPanel; ++u) {
      asm("" : "+r"(x));  // else what is loaded of it moves before this loop, and from there to the stack
      const std::size_t n = u * kWidth;
      IntVec totals[kRows][2];
      sum_rows<kFormat, kDot, kRows, kPacked, 0>(totals, x, codes, u, b, kSequence);
      if constexpr (kFormat.group == 16) {
        add_scaled(c, totals, x, b, scales.scale(b, 0, n), scales.scale(b, 0, n + 16), u);
        sum_rows<kFormat, kDot, kRows, kPacked, 4>(totals, x, codes, u, b, kSequence);
        add_scaled(c, totals, x, b, scales.scale(b, 1, n), scales.scale(b, 1, n + 16), u);
      } else {
        if constexpr (kSumRows == 4) {
          IntVec more[kRows][2];
          sum_rows<kFormat, kDot, kRows, kPacked, 4>(more, x, codes, u, b, kSequence);
          HWY_UNROLL(8)
          for (std::size_t r = 0; r < kRows; ++r) {
            totals[r][0] = hn::Add(totals[r][0], more[r][0]);
            totals[r][1] = hn::Add(totals[r][1], more[r][1]);
          }
        }
        add_scaled(c, totals, x, b, scales.scale(b, 0, n), scales.scale(b, 0, n + 16), u);
      }
      if constexpr (kFormat.minimums) {
        for (std::int64_t g = 0; g < kQuantBlock / kFormat.group; ++g) {
          add_minimums<kFormat, kRows>(c, x, b, g, scales.minimum(b, g, n), scales.minimum(b, g, n + 16), u);
        }
      }
    }
  }
}

template <class Scales>
using MultiplyChunk = void (*)(float*, const ActivationChunk*, const std::uint8_t*, std::int64_t, Scales, std::int64_t);

template <CodeFormat kFormat, Dot kDot, bool kPacked, class Scales, std::size_t... kIndex>
HWY_INLINE MultiplyChunk<Scales> multiply_chunk_for(std::size_t rows, std::index_sequence<kIndex...>) {
  static constexpr MultiplyChunk<Scales> kTable[] = {&multiply_chunk<kFormat, kDot, kIndex + 1, kPacked, Scales>...};
  return kTable[rows - 1];
}

/// c[rows, 32] += x[rows] * a chunk, in groups of rows of nearly equal size.
template <CodeFormat kFormat, Dot kDot, bool kPacked, class Scales>
void multiply_chunk_rows(float* c, const ActivationChunk* x, std::int64_t rows, const std::uint8_t* codes,
                         std::int64_t block_bytes, Scales scales, std::int64_t blocks) {
  constexpr std::size_t kGroup = kPacked ? kPackedRows<kDot> : kQuantRows;
  const auto total = static_cast<std::size_t>(rows);
  const std::size_t groups = (total + kGroup - 1) / kGroup;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t begin = total * g / groups;
    const auto multiply = multiply_chunk_for<kFormat, kDot, kPacked, Scales>(total * (g + 1) / groups - begin,
                                                                             std::make_index_sequence<kGroup>());
    multiply(c + begin * kPanel, x + begin, codes, block_bytes, scales, blocks);
  }
}

template <CodeFormat kFormat, int... kRow>
HWY_INLINE void widen_block(std::uint8_t* HWY_RESTRICT out, const std::uint8_t* HWY_RESTRICT block,
                            std::integer_sequence<int, kRow...>) {
  const auto widen = [&]<int kOne>(std::integral_constant<int, kOne>) HWY_ATTR {
    prefetch_row<kFormat, kOne>(block);
    for (std::size_t u = 0; u < kUnitsPerPanel; ++u) {
      ByteVec low, high;
      load_codes<kFormat, kOne, true>(block, u, low, high);
      store_bytes(low, out + kOne * 128 + u * kUnitBytes);
      store_bytes(high, out + kOne * 128 + 64 + u * kUnitBytes);
    }
  };
  (widen(std::integral_constant<int, kRow>()), ...);
}

/// out[blocks][8][32] words of four codes.
template <CodeFormat kFormat>
void widen_codes(std::uint8_t* out, const std::uint8_t* codes, std::int64_t block_bytes, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b, codes += block_bytes, out += kWideBytes) {
    widen_block<kFormat>(out, codes, std::make_integer_sequence<int, 8>());
  }
}

/// Makes quants of codes that widen_codes wrote.
template <CodeFormat kFormat>
void subtract_offset(std::uint8_t* codes, std::int64_t blocks) {
  for (std::int64_t i = 0; i < blocks * kWideBytes; ++i)
    codes[i] = static_cast<std::uint8_t>(codes[i] - wide_offset(kFormat));
}

/// out[32 * blocks][32] f32 = the values of a chunk whose codes have a byte each, `block_bytes` between blocks.
template <CodeFormat kFormat>
void widen_values(float* out, const std::uint8_t* codes, std::int64_t block_bytes, const WideScales& scales,
                  std::int64_t blocks) {
  constexpr std::int64_t kGroups = kQuantBlock / kFormat.group;
  const Floats f;
  const IntTag i32;
  for (std::int64_t b = 0; b < blocks; ++b, codes += block_bytes) {
    for (std::int64_t row = 0; row < 8; ++row) {
      const std::int64_t group = b * kGroups + row * kGroups / 8;
      const float *scale = scales.scale[group], *minimum = scales.minimum[group];
      for (std::size_t n = 0; n < kPanel; n += kWidth) {
        const IntVec four = hn::BitCast(i32, load_bytes(codes + row * 128 + 4 * n));
        const auto widen = [&](IntVec moved, std::int64_t j) HWY_ATTR {  // the code is in the top byte
          const IntVec code = has_signed_bytes(kFormat) ? hn::ShiftRight<24>(moved)
                                                        : hn::And(hn::ShiftRight<24>(moved), hn::Set(i32, 255));
          const FloatVec quant = hn::ConvertTo(f, hn::Sub(code, hn::Set(i32, wide_offset(kFormat))));
          const FloatVec product = hn::Mul(quant, hn::LoadU(f, scale + n));
          float* value = out + (b * kQuantBlock + row * 4 + j) * kPanel + n;
          hn::StoreU(kFormat.minimums ? hn::Add(product, hn::LoadU(f, minimum + n)) : product, f, value);
        };
        widen(hn::ShiftLeft<24>(four), 0);
        widen(hn::ShiftLeft<16>(four), 1);
        widen(hn::ShiftLeft<8>(four), 2);
        widen(four, 3);
      }
    }
  }
}

/// Rows for which codes are not widened first. With groups of eight, each of which takes the codes apart, 10 to 24 rows
/// are 4 to 10 % faster than with widening; with groups of four, a second group costs more than widening.
template <Dot kDot>
inline constexpr std::int64_t kFewRows = kPackedRows<kDot> == kQuantRows ? kQuantRows : 3 * kPackedRows<kDot>;

/// Calls fn with std::integral_constant<Dot, ...>: how this processor multiplies bytes.
template <class Fn>
HWY_INLINE void with_dot(DotInstructions has, const Fn& fn) {
  if constexpr (kHasPairs) {
    if (!adds_quads(has)) return fn(std::integral_constant<Dot, Dot::pairs>());
  }
  fn(std::integral_constant<Dot, Dot::quads>());
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
