// SPDX-License-Identifier: Apache-2.0
// The product of quantised weights by tiles, for processors with AMX: one instruction adds the products of 16 rows of
// activations, 16 outputs and 32 (16) inputs. Its sums are the exact integers of quantized_tile-inl.h, and the chain in
// f32 over the blocks is the same, so the bits are, too.
//
// Of the eight tile registers 0 to 3 hold sums [16][16], 4 and 5 activations [16][32 (16)], and 6 and 7 codes
// [8 (4)][16] as words of four: word n of row k has inputs 4 k to 4 k + 3 of output n. Widened codes and activations
// lie so in memory.
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_QUANTIZED_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_QUANTIZED_AMX_INL_H_
#undef BATON_CPU_QUANTIZED_AMX_INL_H_
#else
#define BATON_CPU_QUANTIZED_AMX_INL_H_
#endif

#include <algorithm>
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

/// Sums of one block: [rows 0 to 15, 16 to 31][outputs 0 to 15, 16 to 31][16][16], for each group.
struct AmxSums {
  alignas(64) std::int32_t of[2][2][2][16 * 16];  // [group]
};

template <int kTile>
HWY_INLINE void load_tile(const void* data, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_tile(std::int32_t* data) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(std::int64_t{64}), "i"(kTile) : "memory");
}
/// Tile kSum = tile kActivations * tile kCodes.
template <CodeFormat kFormat, int kSum, int kActivations, int kCodes>
HWY_INLINE void multiply_tiles() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kSum));
  if constexpr (kFormat.bits == 8) {  // signed
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kActivations), "i"(kCodes));
  } else {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kActivations), "i"(kCodes));
  }
}

/// sums = codes * quants of 16 or, where `two`, 32 rows and 32 outputs, for a block.
template <CodeFormat kFormat>
HWY_INLINE void multiply_block(AmxSums& sums, const ActivationChunk* x, const std::uint8_t* codes, std::int64_t b,
                               bool two) {
  constexpr auto kStride = static_cast<std::int64_t>(sizeof(ActivationChunk));
  for (int g = 0; g < kQuantBlock / kFormat.group; ++g) {
    const std::int8_t* quants = x->quants + b * kQuantBlock + g * kFormat.group;
    const std::uint8_t* group = codes + g * kFormat.group / 4 * 128;
    load_tile<4>(quants, kStride);
    load_tile<6>(group, 128);
    load_tile<7>(group + 64, 128);
    multiply_tiles<kFormat, 0, 4, 6>();
    multiply_tiles<kFormat, 1, 4, 7>();
    if (two) {
      load_tile<5>(quants + 16 * kStride, kStride);
      multiply_tiles<kFormat, 2, 5, 6>();
      multiply_tiles<kFormat, 3, 5, 7>();
    }
    store_tile<0>(sums.of[g][0][0]);
    store_tile<1>(sums.of[g][0][1]);
    if (!two) continue;
    store_tile<2>(sums.of[g][1][0]);
    store_tile<3>(sums.of[g][1][1]);
  }
}

/// Adds sums * scales, and the minimums, to c[rows, 32]: the chain of multiply_chunk.
template <CodeFormat kFormat, class Scales>
HWY_INLINE void add_block(float* HWY_RESTRICT c, const AmxSums& sums, const ActivationChunk* HWY_RESTRICT x,
                          std::int64_t rows, std::int64_t b, const Scales& scales) {
  constexpr int kGroups = kQuantBlock / kFormat.group;
  const Floats f;
  const IntTag i32;
  FloatVec scale[kGroups][2];
  for (int g = 0; g < kGroups; ++g) {
    scale[g][0] = scales.scale(b, g, 0);
    scale[g][1] = scales.scale(b, g, 16);
  }
  FloatVec minimum[2] = {hn::Zero(f), hn::Zero(f)};
  if constexpr (kFormat.minimums) {
    minimum[0] = scales.minimum(b, 0);
    minimum[1] = scales.minimum(b, 16);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const FloatVec activation = hn::Set(f, x[r].scale[b]);
    float* out = c + r * kPanel;
    for (int half = 0; half < 2; ++half) {
      FloatVec acc = hn::LoadU(f, out + half * 16);
      for (int g = 0; g < kGroups; ++g) {
        IntVec total = hn::Load(i32, sums.of[g][r / 16][half] + r % 16 * 16);
        if constexpr (kFormat.offset != 0) {
          constexpr int kStart = kFormat.offset == 8 ? 0 : kFormat.offset == 16 ? 1 : 2;
          total = hn::Add(total, hn::Set(i32, x[r].start[b][kStart + g]));
        }
        acc = hn::MulAdd(hn::Mul(hn::ConvertTo(f, total), activation), scale[g][half], acc);
      }
      if constexpr (kFormat.minimums) acc = hn::MulAdd(minimum[half], hn::Set(f, x[r].sum[b]), acc);
      hn::StoreU(acc, f, out + half * 16);
    }
  }
}

/// c[rows, 32] += x[rows] * a chunk whose codes have a byte each, `block_bytes` between blocks. Reads x up to a
/// multiple of kAmxRows rows. The tiles of a block are multiplied while the sums of the block before are scaled.
template <CodeFormat kFormat, class Scales>
HWY_NOINLINE void multiply_chunk_tiles(float* c, const ActivationChunk* x, std::int64_t rows, const std::uint8_t* codes,
                                       std::int64_t block_bytes, const Scales& scales, std::int64_t blocks) {
  AmxSums sums[2];
  for (std::int64_t r = 0; r < rows; r += 2 * kAmxRows) {
    const std::int64_t count = std::min(rows - r, 2 * kAmxRows);
    const bool two = count > kAmxRows;
    multiply_block<kFormat>(sums[0], x + r, codes, 0, two);
    for (std::int64_t b = 0; b < blocks; ++b) {
      if (b + 1 < blocks) multiply_block<kFormat>(sums[(b + 1) % 2], x + r, codes + (b + 1) * block_bytes, b + 1, two);
      add_block<kFormat>(c + r * kPanel, sums[b % 2], x + r, count, b, scales);
    }
  }
}

#else

template <CodeFormat kFormat, class Scales>
void multiply_chunk_tiles(float* /*c*/, const ActivationChunk* /*x*/, std::int64_t /*rows*/,
                          const std::uint8_t* /*codes*/, std::int64_t /*block_bytes*/, const Scales& /*scales*/,
                          std::int64_t /*blocks*/) {
  throw std::logic_error("a product by tiles on a processor without them");
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
