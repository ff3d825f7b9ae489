// SPDX-License-Identifier: Apache-2.0
// Products of few rows on the tensor cores. The left operand of a product m16n8k16 holds the weights of 16 outputs, the
// right one up to eight rows of x as its columns. The order of the inputs within a sum does not matter as long as both
// operands have the same: a lane reads 16 bytes, eight neighbouring inputs, of each of its two outputs and of its row,
// and uses them as its fragments of two products. So weights are read once, in whole sectors, and never unpacked.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputs = 16;  // per block; its warps divide the inputs
constexpr int kColumns = 8;   // rows of x
constexpr int kChunk = 8;     // elements of 16 bytes
constexpr int kStep = 32;     // inputs of two products
constexpr int kAhead = 4;     // steps that a lane has in flight

/// [warp][row][output]; the padding lets the lanes of a warp write to different banks.
struct WarpSums {
  float of_warp[kWarps][kColumns][kOutputs + 4];
};

/// What a lane reads of one step: inputs of outputs g and g + 8 and of row g, with g = lane / 4.
struct Fragments {
  uint4 low, high, x;
};

__device__ __forceinline__ void add_products(float (&sum)[4], const Fragments& f) {
  const std::uint32_t first[4] = {f.low.x, f.high.x, f.low.y, f.high.y};
  const std::uint32_t second[4] = {f.low.z, f.high.z, f.low.w, f.high.w};
  multiply_16x8x16(sum, first, f.x.x, f.x.y);
  multiply_16x8x16(sum, second, f.x.z, f.x.w);
}

template <class Out>
__global__ void __launch_bounds__(kThreads, 3)
    few_rows_tensor(Strided<Out> out,       // [T, N]
                    Strided<const Bf16> x,  // [T, C]
                    Strided<const Bf16> w,  // [N, C]
                    const float* bias, std::int64_t rows, std::int64_t n, std::int64_t c) {
  WarpSums& sums = shared_memory<WarpSums>();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int group = lane / 4, chunk = lane % 4 * kChunk;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kOutputs;
  // Outputs and rows that do not exist are computed from the first of the block, and not written.
  const auto weights = [&](int output) { return w.row(first + output < n ? first + output : first) + chunk; };
  const Bf16 *low = weights(group), *high = weights(group + 8);
  const Bf16* row = x.row(group < rows ? group : 0) + chunk;
  const auto read = [&](std::int64_t at) {
    return Fragments{*reinterpret_cast<const uint4*>(low + at), *reinterpret_cast<const uint4*>(high + at),
                     *reinterpret_cast<const uint4*>(row + at)};
  };
  float sum[4] = {};
  std::int64_t at = static_cast<std::int64_t>(warp) * kAhead * kStep;
  for (; at + kAhead * kStep <= c; at += static_cast<std::int64_t>(kWarps) * kAhead * kStep) {
    Fragments ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = read(at + i * kStep);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) add_products(sum, ahead[i]);
  }
  for (; at < c; at += kStep) {  // of one warp: the last inputs
    Fragments last{};
    if (at + chunk < c) last = read(at);
    add_products(sum, last);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums.of_warp[warp][lane % 4 * 2 + i % 2][group + i / 2 * 8] = sum[i];
  sync_block();
  const int column = static_cast<int>(threadIdx.x) / kOutputs, output = static_cast<int>(threadIdx.x) % kOutputs;
  if (column >= rows || first + output >= n) return;
  float total = bias != nullptr ? bias[first + output] : 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += sums.of_warp[i][column][output];
  out.row(column)[first + output] = from_float<Out>(total);
}

}  // namespace

void launch_few_rows_tensor(Stream stream, const Product& p) {
  const dim3 grid(static_cast<unsigned>(blocks_of(p.n, kOutputs)));
  with_type(p.out_dtype, [&](auto element) {
    using Out = decltype(element);
    launch(stream, grid, kThreads, sizeof(WarpSums), few_rows_tensor<Out>,
           Strided<Out>{static_cast<Out*>(p.out), p.out_stride},
           Strided<const Bf16>{reinterpret_cast<const Bf16*>(p.x), p.x_stride},
           Strided<const Bf16>{reinterpret_cast<const Bf16*>(p.w), p.w_stride}, p.bias, p.t, p.n, p.c);
  });
}

}  // namespace baton::cuda
