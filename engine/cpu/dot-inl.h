// SPDX-License-Identifier: Apache-2.0
// Dot products of bytes, four to a 32-bit lane, exact on every target. Two ways:
//   pairs  x86 without dot product instructions: products of unsigned by signed bytes are added in pairs to 16 bits
//          (without saturation, see the bounds in quantized_tile-inl.h) and those later to 32 bits;
//   quads  four products are added to 32 bits at once: VNNI of either encoding, NEON, and plain code.
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

#include "engine/cpu/dot.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::CappedTag<std::uint32_t, 16>;
using IntTag = hn::CappedTag<std::int32_t, 16>;
using ByteVec = hn::Vec<WordTag>;  // four bytes to a lane
using IntVec = hn::Vec<IntTag>;

/// The compiler may neither reorder sums across this nor keep the terms of several waiting: left alone, GCC multiplies
/// a whole block first, adds later, and spills what lies between.
template <class V>
HWY_INLINE void in_this_order(V& sum) {
#if HWY_TARGET == HWY_AVX3
  asm("" : "+v"(sum.raw));
#elif HWY_TARGET == HWY_AVX2
  asm("" : "+x"(sum.raw));
#elif HWY_TARGET == HWY_NEON
  asm("" : "+w"(sum.raw));
#else
  (void)sum;
#endif
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr bool kHasPairs = true;
using PairTag = hn::CappedTag<std::int16_t, 32>;
using PairVec = hn::Vec<PairTag>;

/// Unsigned codes by signed quants.
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants) {
#if HWY_TARGET == HWY_AVX3
  return PairVec{_mm512_maddubs_epi16(codes.raw, quants.raw)};
#else
  return PairVec{_mm256_maddubs_epi16(codes.raw, quants.raw)};
#endif
}

HWY_INLINE IntVec fold_pairs(PairVec pairs) {
#if HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#else
  return IntVec{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#endif
}

/// acc + codes * quants. The compiler need not know of the instruction: whether the processor does is asked at run
/// time.
HWY_INLINE IntVec add_quads(IntVec acc, ByteVec codes, ByteVec quants) {
#if HWY_TARGET == HWY_AVX3
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
#if HWY_TARGET == HWY_AVX3
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

#else
inline constexpr bool kHasPairs = false;
using PairVec = IntVec;  // not used
HWY_INLINE PairVec multiply_pairs(ByteVec codes, ByteVec quants);
HWY_INLINE IntVec fold_pairs(PairVec pairs);

#if HWY_TARGET == HWY_NEON
/// acc + weights * quants; codes below 128 are signed bytes as well.
HWY_INLINE IntVec add_quads(IntVec acc, ByteVec weights, ByteVec quants) {
  const int8x16_t w = vreinterpretq_s8_u32(weights.raw), q = vreinterpretq_s8_u32(quants.raw);
#ifdef __ARM_FEATURE_DOTPROD
  return IntVec{vdotq_s32(acc.raw, w, q)};
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(q));
  const int16x8_t high = vmull_high_s8(w, q);
  return IntVec{vaddq_s32(acc.raw, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))};
#endif
}
#else
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
#endif

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
