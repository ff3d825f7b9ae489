// SPDX-License-Identifier: Apache-2.0
// Tensor core products of bytes (ptx.cuh), by the fragment layouts of the PTX manual.
#include "simt_emulator.h"

namespace baton::cuda {
namespace {

struct ByteOperand {
  std::uint32_t* sum;
  const std::uint32_t* a;  // kHalves pairs of words
  const std::uint32_t* b;  // kHalves words
  std::uint32_t start;
};

template <bool kUnsigned>
int byte_of(std::uint32_t word, int index) {
  const auto bits = static_cast<std::uint8_t>(word >> (8 * index));
  return kUnsigned ? int{bits} : int{static_cast<std::int8_t>(bits)};
}

template <bool kUnsigned, int kHalves>
void multiply(void* const* operands) {
  ++simt::counters().products;
  constexpr int kInputs = 16 * kHalves;
  int a_all[16][kInputs], b_all[8][kInputs];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const ByteOperand*>(operands[lane]);
    const int g = lane / 4, p = lane % 4 * 4;
    for (int half = 0; half < kHalves; ++half) {
      for (int j = 0; j < 4; ++j) {
        const int input = 16 * half + p + j;
        a_all[g][input] = byte_of<kUnsigned>(own.a[2 * half], j);
        a_all[g + 8][input] = byte_of<kUnsigned>(own.a[2 * half + 1], j);
        b_all[g][input] = byte_of<false>(own.b[half], j);
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const ByteOperand*>(operands[lane]);
    const int g = lane / 4, p = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      int sum = 0;
      for (int k = 0; k < kInputs; ++k) sum += a_all[g + i / 2 * 8][k] * b_all[p + i % 2][k];
      own.sum[i] = own.start + static_cast<std::uint32_t>(sum);
    }
  }
}

}  // namespace

template <bool kUnsigned>
void multiply_bytes_16x8x32(std::uint32_t (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                            std::uint32_t start, const Place& place) {
  ByteOperand operand{sum, a, b, start};
  simt::warp_together(&operand, multiply<kUnsigned, 2>, place);
}
template void multiply_bytes_16x8x32<false>(std::uint32_t (&)[4], const std::uint32_t (&)[4],
                                            const std::uint32_t (&)[2], std::uint32_t, const Place&);
template void multiply_bytes_16x8x32<true>(std::uint32_t (&)[4], const std::uint32_t (&)[4], const std::uint32_t (&)[2],
                                           std::uint32_t, const Place&);

void multiply_bytes_16x8x16(std::uint32_t (&sum)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b,
                            std::uint32_t start, const Place& place) {
  const std::uint32_t a[2] = {a0, a1};
  ByteOperand operand{sum, a, &b, start};
  simt::warp_together(&operand, multiply<false, 1>, place);
}

}  // namespace baton::cuda
