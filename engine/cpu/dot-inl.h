// SPDX-License-Identifier: Apache-2.0
// Dot products of bytes, four to a 32-bit lane, exact on every target. Two ways:
//   pairs  processors without dot product instructions: products of codes by signed bytes are added in pairs to 16 bits
//          (without saturation, see the bounds in quantized_tile-inl.h) and those later to 32 bits;
//   quads  four products are added to 32 bits at once: VNNI of either encoding, SDOT of NEON, and plain code.
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_DOT_INL_H_
#undef BATON_CPU_DOT_INL_H_
#else
#define BATON_CPU_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "engine/cpu/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

/// acc + weights * quants, both signed. Quants are above -128.
template <Dot kDot>
HWY_INLINE IntVec add_signed(IntVec acc, ByteVec weights, ByteVec quants) {
  if constexpr (kDot == Dot::quads) {  // the kernel starts from -128 times the sum of the quants
    return add_quads(acc, hn::Xor(weights, hn::Set(WordTag(), 0x80808080u)), quants);
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

/// What add_signed adds to a weight on its way, as a power of two; -1: nothing.
template <Dot kDot>
inline constexpr int kSignedOffsetLog2 = kDot == Dot::quads ? 7 : -1;

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
inline constexpr int kSignedOffsetLog2 = -1;

#else
inline constexpr bool kHasPairs = false;
using PairVec = IntVec;  // not used
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants);
HWY_INLINE IntVec fold_pairs(PairVec pairs);

HWY_INLINE IntVec add_quads(IntVec acc, ByteVec weights, ByteVec quants) {
  constexpr std::size_t kLanes = hn::MaxLanes(IntTag());
  std::uint32_t w[kLanes], q[kLanes];
  std::int32_t sums[kLanes];
  hn::StoreU(weights, WordTag(), w);
  hn::StoreU(quants, WordTag(), q);
  hn::StoreU(acc, IntTag(), sums);
  const auto byte = [](std::uint32_t word, int j) { return static_cast<std::int8_t>(word >> (8 * j)); };
  for (std::size_t i = 0; i < kLanes; ++i) {
    for (int j = 0; j < 4; ++j) sums[i] += byte(w[i], j) * byte(q[i], j);
  }
  return hn::LoadU(IntTag(), sums);
}

template <Dot kDot>
HWY_INLINE IntVec add_signed(IntVec acc, ByteVec weights, ByteVec quants) {
  return add_quads(acc, weights, quants);
}
template <Dot kDot>
inline constexpr int kSignedOffsetLog2 = -1;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
