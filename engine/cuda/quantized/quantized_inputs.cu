// SPDX-License-Identifier: Apache-2.0
// Activations in 8 bits: a warp quantises a block of 32 inputs of one row, as the CPU does (engine/cpu/quantized).
#include "engine/cuda/kernels/vectors.cuh"
#include "engine/cuda/quantized/quantized_kernels.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kBlocksPerUnit = 2;
constexpr float kSmallest = 0x1p-100f;
constexpr std::uint32_t kInfinity = 0x7f800000u;

__global__ void quantize_inputs(QuantizedInputs out, const float* x, std::int64_t x_stride, std::int64_t rows,
                                std::int64_t cols) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t row = warp / (out.units * kBlocksPerUnit);
  if (row >= out.rows) return;  // a whole warp
  const std::int64_t block = warp % (out.units * kBlocksPerUnit);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t input = block * kWarp + lane;
  const float value = row < rows && input < cols ? x[row * x_stride + input] : 0.0f;

  std::uint32_t largest = bits_of(value) & 0x7fffffffu;
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  const float magnitude = float_of(largest);
  const bool finite = largest < kInfinity, zeros = !finite || magnitude < kSmallest;
  const int quant = zeros ? 0 : static_cast<int>(rintf(value * (127.0f / magnitude)));
  const float scale = !finite ? float_of(0x7fc00000u) : zeros ? 0.0f : magnitude / 127.0f;

  int sum = quant;
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  std::uint32_t word = (static_cast<std::uint32_t>(quant) & 0xffu) << (lane % 4 * 8);
  word |= shuffle_xor(word, 1);
  word |= shuffle_xor(word, 2);

  const std::int64_t at = block / kBlocksPerUnit * out.rows + row;
  const std::int64_t half = block % kBlocksPerUnit;
  if (lane % 4 == 0) {
    const std::int64_t byte = lane % 16 / 4 * 16 + half * 8 + lane / 16 * 4;
    *reinterpret_cast<std::uint32_t*>(out.quants + at * kUnitInputs + byte) = word;
  }
  if (lane == 0) {
    out.scales[at * kBlocksPerUnit + half] = scale;
    out.sums[at * kBlocksPerUnit + half] = scale * static_cast<float>(sum);
  }
}

}  // namespace

void launch_quantize_inputs(Stream stream, const QuantizedInputs& out, ConstTensorView x) {
  const std::int64_t warps = out.rows * out.units * kBlocksPerUnit;
  launch(stream, dim3(static_cast<unsigned>(blocks_of(warps, kThreads / kWarp))), kThreads, 0, quantize_inputs, out,
         elements<float>(x), x.stride, x.rows, x.cols);
}

}  // namespace baton::cuda
