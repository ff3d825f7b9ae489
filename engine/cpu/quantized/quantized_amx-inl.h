// SPDX-License-Identifier: Apache-2.0
// The product of quantised weights by tiles, for processors with AMX: one instruction adds the products of 16 rows of
// activations, 16 outputs and 32 (16) inputs. Its sums are the exact integers of quantized_tile-inl.h, and the chain in
// f32 over the blocks is the same, so the bits are, too.
//
// Of the eight tile registers 0 to 3 hold sums [16][16], 4 and 5 activations [16][32 (16)], and 6 and 7 codes
// [8 (4)][16] as words of four: word n of row k has inputs 4 k to 4 k + 3 of output n. Widened codes and activations
// lie so in memory. Sums have no other way to the vector registers than memory.
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_QUANTIZED_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_QUANTIZED_AMX_INL_H_
#undef BATON_CPU_QUANTIZED_AMX_INL_H_
#else
#define BATON_CPU_QUANTIZED_AMX_INL_H_
#endif

#include <cstdint>
#include <stdexcept>

#include "engine/cpu/quantized/quantized_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

#undef BATON_AMX
#define BATON_AMX (HWY_ARCH_X86_64 && BATON_DOT_AVX512)

/// Does the processor multiply tiles? The compiler need not know of the instructions.
HWY_INLINE bool multiplies_tiles(DotInstructions has) { return BATON_AMX && has.avx512_vnni && has.amx_int8; }

/// Gives the tile registers their shapes for codes of which `group` share a scale, and releases them when destroyed.
class AmxShapes {
 public:
  explicit AmxShapes(int group) : group_(group) {
#if BATON_AMX
    struct {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t bytes[16] = {};  // of a row
      std::uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 8; ++i) {
      const bool codes = i >= 6, activations = i == 4 || i == 5;
      shapes.bytes[i] = static_cast<std::uint16_t>(activations ? group : 64);
      shapes.rows[i] = static_cast<std::uint8_t>(codes ? group / 4 : 16);
    }
    static_assert(sizeof(shapes) == 64);
    asm volatile("ldtilecfg %0" : : "m"(shapes));
#endif
  }
  ~AmxShapes() {
#if BATON_AMX
    asm volatile("tilerelease");
#endif
  }
  AmxShapes(const AmxShapes&) = delete;
  AmxShapes& operator=(const AmxShapes&) = delete;

  int group() const { return group_; }

 private:
  int group_;
};

#if BATON_AMX
static_assert(kWidth == 16);

template <int kTile>
HWY_INLINE void load_tile(const void* data, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_tile(std::int32_t* data) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(std::int64_t{64}), "i"(kTile) : "memory");
}
/// Tile kSum = tile kActivations * tile kCodes.
template <int kSum, int kActivations, int kCodes>
HWY_INLINE void multiply_tiles() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kSum));
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kActivations), "i"(kCodes));
}

/// The product of 16 rows and 16 outputs over a chunk, in steps of `group` inputs. While the sums of a step are scaled,
/// those of the next two are made.
template <CodeFormat kFormat, class Scales>
class TileProduct {
 public:
  static constexpr std::int64_t kGroups = kQuantBlock / kFormat.group;

  TileProduct(const ActivationTile& x, const std::uint8_t* codes, std::int64_t block_bytes, const Scales& scales,
              std::int64_t half)
      : x_(x), codes_(codes + 64 * half), block_bytes_(block_bytes), scales_(scales), output_(16 * half) {}

  /// c[16, 16] += the product over `blocks` blocks; 32 floats between rows. The chain of multiply_chunk. `next`, if not
  /// null, is prefetched.
  HWY_INLINE void add_to(float* HWY_RESTRICT c, std::int64_t blocks, const ActivationTile* next) {
    const Floats f;
    const std::int64_t steps = blocks * kGroups;
    FloatVec acc[kAmxRows];
    HWY_UNROLL(16)
    for (std::int64_t r = 0; r < kAmxRows; ++r) acc[r] = hn::LoadU(f, c + r * kPanel);
    multiply<0>(0);
    if (steps > 1) multiply<1>(1);
    for (std::int64_t s = 0; s < steps; s += 4) {
      if (s + 2 < steps) multiply<2>(s + 2);
      add<0>(acc, s, next);
      if (s + 1 == steps) break;
      if (s + 3 < steps) multiply<3>(s + 3);
      add<1>(acc, s + 1, next);
      if (s + 2 == steps) break;
      if (s + 4 < steps) multiply<0>(s + 4);
      add<2>(acc, s + 2, next);
      if (s + 3 == steps) break;
      if (s + 5 < steps) multiply<1>(s + 5);
      add<3>(acc, s + 3, next);
    }
    HWY_UNROLL(16)
    for (std::int64_t r = 0; r < kAmxRows; ++r) hn::StoreU(acc[r], f, c + r * kPanel);
  }

 private:
  template <int kTile>
  HWY_INLINE void multiply(std::int64_t step) {
    constexpr int kActivations = 4 + kTile % 2, kCodes = 6 + kTile % 2;
    const std::int64_t b = step / kGroups, g = step % kGroups;
    load_tile<kActivations>(x_.quants[b][0] + g * kFormat.group, kQuantBlock);
    load_tile<kCodes>(codes_ + b * block_bytes_ + g * kFormat.group / 4 * 128, 128);
    multiply_tiles<kTile, kActivations, kCodes>();
    store_tile<kTile>(sums_[kTile]);
  }

  template <int kTile>
  HWY_INLINE void add(FloatVec (&acc)[kAmxRows], std::int64_t step, const ActivationTile* next) {
    const Floats f;
    const IntTag i32;
    const std::int64_t b = step / kGroups, g = step % kGroups;
    const FloatVec scale = scales_.scale(b, g, static_cast<std::size_t>(output_));
    if (next != nullptr) prefetch(*next, b, g);
    HWY_UNROLL(16)
    for (std::int64_t r = 0; r < kAmxRows; ++r) {
      const FloatVec total = hn::ConvertTo(f, hn::Load(i32, sums_[kTile] + 16 * r));
      acc[r] = hn::MulAdd(hn::Mul(total, hn::Set(f, x_.scale[b][r])), scale, acc[r]);
    }
    if constexpr (kFormat.minimums) {
      if (g + 1 < kGroups) return;
      for (std::int64_t of = 0; of < kGroups; ++of) {
        const FloatVec minimum = scales_.minimum(b, of, static_cast<std::size_t>(output_));
        const float* sums = kGroups == 1 ? x_.sum[b] : x_.half_sum[b][of];
        HWY_UNROLL(16)
        for (std::int64_t r = 0; r < kAmxRows; ++r) acc[r] = hn::MulAdd(minimum, hn::Set(f, sums[r]), acc[r]);
      }
    }
  }

  /// The part of the next tile that the same step will read.
  static HWY_INLINE void prefetch(const ActivationTile& next, std::int64_t b, std::int64_t g) {
    if (g > 0) return;
    HWY_UNROLL(8)
    for (std::int64_t r = 0; r < kAmxRows; r += 2) __builtin_prefetch(next.quants[b][r]);
    __builtin_prefetch(next.scale[b]);
    if constexpr (kFormat.minimums && kGroups == 1) __builtin_prefetch(next.sum[b]);
    if constexpr (kFormat.minimums && kGroups == 2) {
      for (const auto& sums : next.half_sum[b]) __builtin_prefetch(sums);
    }
  }

  const ActivationTile& x_;
  const std::uint8_t* codes_;
  std::int64_t block_bytes_;
  const Scales& scales_;
  std::int64_t output_;
  alignas(64) std::int32_t sums_[4][kAmxRows * 16];
};

/// Codes that are stored as bytes are read where they lie, by tile instructions, which wait long for what is not in the
/// caches: each tile prefetches its share of the next chunk's. Prefill of 512 tokens of Qwen2.5-Coder-0.5B Q8_0 is 1.12
/// times as fast for it. Codes of fewer bits are widened first; there a prefetch brought nothing.
template <CodeFormat kFormat>
HWY_INLINE void prefetch_share(const std::uint8_t* next, std::int64_t bytes, std::int64_t t, std::int64_t tiles) {
  if constexpr (kFormat.bits == 8) {
    for (std::int64_t i = bytes * t / tiles / 64 * 64; i < bytes * (t + 1) / tiles; i += 64) {
      __builtin_prefetch(next + i, 0, 2);
    }
  }
}

/// c[16 * tiles, 32] += x[tiles] * a chunk whose codes have a signed byte each, `block_bytes` between blocks.
template <CodeFormat kFormat, class Scales>
HWY_NOINLINE void multiply_chunk_tiles(float* c, const ActivationTile* x, std::int64_t tiles, const std::uint8_t* codes,
                                       std::int64_t block_bytes, const Scales& scales, std::int64_t blocks) {
  const std::int64_t bytes = blocks * block_bytes;
  for (std::int64_t t = 0; t < tiles; ++t, c += kAmxRows * kPanel) {
    prefetch_share<kFormat>(codes + bytes, bytes, t, tiles);
    TileProduct<kFormat, Scales>(x[t], codes, block_bytes, scales, 0).add_to(c, blocks, nullptr);
    TileProduct<kFormat, Scales>(x[t], codes, block_bytes, scales, 1)
        .add_to(c + 16, blocks, t + 1 < tiles ? x + t + 1 : nullptr);
  }
}

#else

template <CodeFormat kFormat, class Scales>
void multiply_chunk_tiles(float* /*c*/, const ActivationTile* /*x*/, std::int64_t /*tiles*/,
                          const std::uint8_t* /*codes*/, std::int64_t /*block_bytes*/, const Scales& /*scales*/,
                          std::int64_t /*blocks*/) {
  throw std::logic_error("a product by tiles on a processor without them");
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
