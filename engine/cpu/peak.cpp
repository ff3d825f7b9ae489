// SPDX-License-Identifier: Apache-2.0
// Plain loops of the processor's best instructions, with nothing to wait for: what products and reads are compared
// with.
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/peak.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/cpu/cpu.h"
#include "engine/cpu/quantized/quantized_amx-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kChains = 16;  // independent ones: more than the latency of an instruction needs

/// acc = f(acc) for each of the sums, `times` times. The end is stored, so that the compiler keeps them.
template <class D, class F>
HWY_INLINE void repeat_sums(D d, std::int64_t times, const F& f) {
  hn::Vec<D> sums[kChains];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::Zero(d);
  for (std::int64_t t = 0; t < times; ++t) {
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kChains; ++i) {
      sums[i] = f(sums[i]);
      in_this_order(sums[i]);
    }
  }
  HWY_ALIGN hn::TFromD<D> end[hn::MaxLanes(d)];
  for (std::size_t i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  hn::Store(sums[0], d, end);
  volatile hn::TFromD<D> kept = end[0];
  (void)kept;
}

double repeat_f32(std::int64_t times) {
  const Floats f;
  auto a = hn::Set(f, 0.5f), b = hn::Set(f, 0.25f);
  in_this_order(a);
  in_this_order(b);
  repeat_sums(f, times, [&](FloatVec acc) { return hn::MulAdd(a, b, acc); });
  return 2.0 * static_cast<double>(hn::Lanes(f) * kChains) * static_cast<double>(times);
}

double repeat_pairs_of_bf16(std::int64_t times) {
#if BATON_DOT_AVX512
  if (!dot_instructions().avx512_bf16) return 0.0;
  const hn::FixedTag<float, 16> f;
  const auto a = hn::Set(f, 0.5f), b = hn::Set(f, 0.25f);
  repeat_sums(f, times, [&](auto acc) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
    return acc;
  });
  return 2.0 * 2 * 16 * kChains * static_cast<double>(times);
#else
  (void)times;
  return 0.0;
#endif
}

double repeat_tiles(std::int64_t times) {
#if BATON_AMX
  if (!multiplies_tiles(dot_instructions())) return 0.0;
  const AmxShapes shapes(64);
  alignas(64) const std::int8_t bytes[16 * 64] = {1, 2, 3};
  load_tile<4>(bytes, 64);
  load_tile<5>(bytes, 64);
  load_tile<6>(bytes, 64);
  load_tile<7>(bytes, 64);
  for (std::int64_t t = 0; t < times; ++t) {
    multiply_tiles<0, 4, 6>();
    multiply_tiles<1, 5, 7>();
    multiply_tiles<2, 4, 7>();
    multiply_tiles<3, 5, 6>();
  }
  return 2.0 * 4 * 16 * 16 * 64 * static_cast<double>(times);
#else
  (void)times;
  return 0.0;
#endif
}

double repeat_bytes(std::int64_t times) {
  const WordTag words;
  const IntTag ints;
  ByteVec codes = hn::Set(words, 0x01020304u), quants = hn::Set(words, 0x01010101u);
  in_this_order(codes);
  in_this_order(quants);
  const double lanes = static_cast<double>(hn::Lanes(words) * kChains) * static_cast<double>(times);
  if (adds_quads(dot_instructions())) {
    repeat_sums(ints, times, [&](IntVec acc) { return add_quads(acc, codes, quants); });
    return 2.0 * 4 * lanes;
  }
  if constexpr (kHasPairs) {
    const hn::CappedTag<std::int16_t, 32> pairs;
    repeat_sums(pairs, times, [&](auto acc) { return hn::Add(acc, multiply_pairs(codes, quants)); });
    return 2.0 * 4 * lanes;
  }
  return 0.0;
}

double repeat_products(Products kind, std::int64_t times) {
  switch (kind) {
    case Products::f32:
      return repeat_f32(times);
    case Products::bf16:
      return repeat_pairs_of_bf16(times);
    case Products::bytes:
      return repeat_bytes(times);
    case Products::tiles:
      return repeat_tiles(times);
  }
  return 0.0;
}

constexpr std::size_t kAhead = 12288;  // bytes, into the L2 cache, as products prefetch (tile-inl.h)

/// Four vectors from each of the streams in turn, so that as many cache lines are on their way.
std::uint32_t read_bytes(const std::byte* data, std::size_t bytes, std::size_t streams) {
  const WordTag words;
  const std::size_t width = hn::Lanes(words) * sizeof(std::uint32_t), step = 4 * width;
  const std::size_t share = bytes / streams / step * step;
  auto a = hn::Zero(words), b = a, c = a, d = a;
  for (std::size_t at = 0; at < share; at += step) {
    for (std::size_t s = 0; s < streams; ++s) {
      const auto* from = reinterpret_cast<const std::uint32_t*>(data + s * share + at);
      for (std::size_t line = 0; line < step; line += 64)
        __builtin_prefetch(from + (kAhead + line) / sizeof(std::uint32_t), 0, 2);
      a = hn::Xor(a, hn::LoadU(words, from));
      b = hn::Xor(b, hn::LoadU(words, from + width / sizeof(std::uint32_t)));
      c = hn::Xor(c, hn::LoadU(words, from + 2 * width / sizeof(std::uint32_t)));
      d = hn::Xor(d, hn::LoadU(words, from + 3 * width / sizeof(std::uint32_t)));
    }
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton {
namespace cpu {
HWY_EXPORT(repeat_products);
HWY_EXPORT(read_bytes);

double repeat(Products kind, std::int64_t times) { return HWY_DYNAMIC_DISPATCH(repeat_products)(kind, times); }
std::uint32_t read(std::span<const std::byte> bytes, std::size_t streams) {
  return HWY_DYNAMIC_DISPATCH(read_bytes)(bytes.data(), bytes.size(), streams);
}
}  // namespace cpu

double repeat_products(Products kind, std::int64_t times) { return cpu::repeat(kind, times); }

std::uint32_t read_streams(std::span<const std::byte> bytes, std::size_t streams) { return cpu::read(bytes, streams); }

}  // namespace baton
#endif  // HWY_ONCE
