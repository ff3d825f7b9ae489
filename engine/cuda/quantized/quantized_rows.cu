// SPDX-License-Identifier: Apache-2.0
// Rows of a quantised weight as floats: embeddings. A block writes one row.
#include "engine/cuda/quantized/quantized_kernels.h"
#include "engine/cuda/quantized/quantized_unit.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;

/// The code of an input of block h of a unit that `lane` holds in byte j of word r; see DeviceFormat.
template <BlockType kType>
__device__ __forceinline__ int quant_at(const QuantizedPart& part, std::int64_t at, int lane, int h, int r, int j) {
  using Constants = DeviceConstants<kType>;
  constexpr int kBits = Constants::kBits;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(part.codes) + at * Constants::kCodeBytes;
  if constexpr (kBits == 8) {
    return static_cast<std::int8_t>(codes[(h * 32 + lane) * 16 + r * 4 + j]);
  } else {
    int code = codes[lane * 16 + (2 * h + r / 2) * 4 + j] >> (r % 2 * 4) & 15;
    const auto* high = reinterpret_cast<const std::uint8_t*>(part.high) + at * Constants::kHighBytes;
    if constexpr (kBits == 5) code |= (high[lane * 4 + j] >> (4 * h + r) & 1) << 4;
    if constexpr (kBits == 6) code |= (high[lane * 8 + h * 4 + j] >> (2 * r) & 3) << 4;
    constexpr int kSign = Constants::kSigned ? 1 << (kBits - 1) : 0;
    return (code ^ kSign) - kSign;
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
    const int in_block = static_cast<int>(input % 32), h = static_cast<int>(input % kUnitInputs / 32);
    const int lane = output % 8 * 4 + in_block % 16 / 4, half = in_block / 16;
    const int quant = quant_at<kType>(part, panel * part.units + unit, lane, h, 2 * half + output / 8, in_block % 4);
    OutputScales<kType> loaded;
    loaded.load(part, panel, unit, output);
    const BlockScales scales = loaded.of_block(h);
    const float scale = half == 0 ? scales.scale[0] : scales.scale[1];
    const float product = static_cast<float>(quant) * (scale * static_cast<float>(1 << Constants::kShift));
    out[blockIdx.x * out_stride + input] = Constants::kMinimums ? product + scales.minimum : product;
  }
}

}  // namespace

void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids) {
  if (out.rows == 0) return;
  with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
    launch(stream, dim3(static_cast<unsigned>(out.rows)), kThreads, 0, dequantize_rows<kType>, elements<float>(out),
           out.stride, out.cols, part, ids);
  });
}

}  // namespace baton::cuda
