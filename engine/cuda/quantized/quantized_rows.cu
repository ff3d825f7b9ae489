// SPDX-License-Identifier: Apache-2.0
// Rows of a quantised weight as floats (embeddings; a block writes one row), panels of it in bf16 (a warp writes one
// unit), and sums of activations, a warp for each.
#include "engine/cuda/quantized/quantized.h"
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

template <BlockType kType>
__global__ void __launch_bounds__(kThreads)
    unpack_panels(Bf16* out, std::int64_t stride, QuantizedPart part, std::int64_t first) {
  using Unit = QuantUnit<kType>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= part.units) return;  // a whole warp
  Unit unit;
  unit.load(UnitPlace<kType>(part, first + blockIdx.y, index), lane);
  Bf16* rows = out + (blockIdx.y * kPanelOutputs + lane / 4) * stride + index * kUnitInputs;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t codes[2][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) unit.operand(codes[s], h, s);
#pragma unroll
    for (int output = 0; output < 2; ++output) {  // g and g + 8
      const BlockScales scales = unit.scales[output].of_block(h);
      const auto value = [&](float code, int s) {
        const float product = code * scales.scale[s];
        return Unit::kMinimums ? product + scales.minimum : product;
      };
      const auto pair = [&](int s, int j) {
        const std::uint32_t two = codes[s][output + 2 * j];
        return pack_bf16(value(float_of(two << 16), s), value(float_of(two & 0xffff0000u), s));
      };
      Bf16* block = rows + output * 8 * stride + h * kBlockInputs;
      if constexpr (Unit::kGroups == 1) {  // the inputs of both steps are neighbours: DeviceFormat::input_of
        *reinterpret_cast<uint4*>(block + 8 * (lane % 4)) = uint4{pair(0, 0), pair(0, 1), pair(1, 0), pair(1, 1)};
      } else {
        *reinterpret_cast<uint2*>(block + 4 * (lane % 4)) = uint2{pair(0, 0), pair(0, 1)};
        *reinterpret_cast<uint2*>(block + 16 + 4 * (lane % 4)) = uint2{pair(1, 0), pair(1, 1)};
      }
    }
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

void launch_unpack_panels(Stream stream, Bf16* out, const QuantizedPart& part, std::int64_t first,
                          std::int64_t panels) {
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    const dim3 blocks(static_cast<unsigned>(blocks_of(part.units, kThreads / kWarp)), static_cast<unsigned>(panels));
    launch(stream, blocks, kThreads, 0, unpack_panels<kType>, out, part.units * kUnitInputs, part, first);
  });
}

void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids) {
  if (out.rows == 0) return;
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    launch(stream, dim3(static_cast<unsigned>(out.rows)), kThreads, 0, dequantize_rows<kType>, elements<float>(out),
           out.stride, out.cols, part, ids);
  });
}

}  // namespace baton::cuda
