// SPDX-License-Identifier: Apache-2.0
// Rows of a quantised weight as floats (embeddings; a block writes one row), and sums of activations, a warp for each.
#include "engine/cuda/quantized/quantized_kernels.h"
#include "engine/cuda/quantized/quantized_unit.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;

template <BlockType kType>
__device__ __forceinline__ int quant_at(const QuantizedPart& part, std::int64_t at, int output, int input) {
  using Constants = DeviceConstants<kType>;
  constexpr int kBits = Constants::kBits;
  const int h = input / 32, i = input % 32;
  const int p = Constants::kGroups == 2 ? i % 16 / 4 : i / 8, s = Constants::kGroups == 2 ? i / 16 : i / 4 % 2;
  const int lane = output % 8 * 4 + p, j = output / 8 + i % 4 / 2 * 2, odd = i % 2;
  const std::byte* codes = part.codes + at * Constants::kCodeBytes;
  if constexpr (kBits == 8) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes);
    return bytes[((h * 32 + lane) * 4 + 2 * s + j % 2) * 4 + i % 4] - Constants::kOffset;
  } else {
    const auto word = [](const std::byte* words, int index) {
      return reinterpret_cast<const std::uint32_t*>(words)[index];
    };
    std::uint32_t code = word(codes, lane * 4 + 2 * h + s) >> (16 * odd + 4 * j) & 15u;
    const std::byte* high = part.high + at * Constants::kHighBytes;
    if constexpr (kBits == 5) code |= (word(high, lane) >> (16 * odd + 8 * h + 4 * s + j) & 1u) << 4;
    if constexpr (kBits == 6) code |= (word(high, lane * 2 + h) >> (16 * odd + 2 * (4 * s + j)) & 3u) << 4;
    return static_cast<int>(code) - Constants::kOffset;
  }
}

template <BlockType kType>
__global__ void dequantize_rows(float* out, std::int64_t out_stride, std::int64_t cols, QuantizedPart part,
                                const std::int32_t* ids) {
  using Constants = DeviceConstants<kType>;
  const std::int64_t row = ids[blockIdx.x] - part.row;
  if (row < 0 || row >= part.rows) return;
  const std::int64_t panel = row / kPanelOutputs;
  const int output = static_cast<int>(row % kPanelOutputs);
  for (std::int64_t input = threadIdx.x; input < cols; input += kThreads) {
    const std::int64_t unit = input / kUnitInputs;
    const int in_unit = static_cast<int>(input % kUnitInputs), half = in_unit / 16;
    const int quant = quant_at<kType>(part, panel * part.units + unit, output, in_unit);
    OutputScales<kType> loaded;
    const UnitPlace<kType> place(part, panel, unit);
    loaded.load(place.scales(), place.factors(), output);
    const BlockScales scales = loaded.of_block(half / 2);
    const float product = static_cast<float>(quant) * (half % 2 == 0 ? scales.scale[0] : scales.scale[1]);
    out[blockIdx.x * out_stride + input] = Constants::kMinimums ? product + scales.minimum : product;
  }
}

__global__ void block_sums(float* sums, std::int64_t sum_rows, const Bf16* x, std::int64_t x_stride, std::int64_t rows,
                           std::int64_t blocks) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (warp >= sum_rows * blocks) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t row = warp / blocks, block = warp % blocks;
  const float sum = warp_sum(row < rows ? to_float(x[row * x_stride + block * kBlockInputs + lane]) : 0.0f);
  if (lane == 0) sums[block * sum_rows + row] = sum;
}

}  // namespace

void launch_block_sums(Stream stream, float* sums, std::int64_t sum_rows, ConstTensorView x) {
  const std::int64_t blocks = x.cols / kBlockInputs;
  launch(stream, dim3(static_cast<unsigned>(blocks_of(sum_rows * blocks, kThreads / kWarp))), kThreads, 0, block_sums,
         sums, sum_rows, elements<Bf16>(x), x.stride, x.rows, blocks);
}

void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids) {
  if (out.rows == 0) return;
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    launch(stream, dim3(static_cast<unsigned>(out.rows)), kThreads, 0, dequantize_rows<kType>, elements<float>(out),
           out.stride, out.cols, part, ids);
  });
}

}  // namespace baton::cuda
