// SPDX-License-Identifier: Apache-2.0
// Alignment of texts: engine/backend/host_operations.cpp in parallel, with the same result. One block per pair of texts
// and one thread per column of the band; rows are computed in order, because each row of costs depends on the one
// before.
#include "engine/backend/host_operations.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

using namespace editing;

constexpr int kThreads = 2 * kBand;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRowsTogether = 32;  // rows of cells per chunk when the path is traced back

struct AlignShared {
  float sketch[2][kSketchWidth];   // of the current row's token, and of the next row's
  std::int32_t cost[2][kThreads];  // of the previous and the current row; column j is at j % kThreads
  std::int32_t least[kWarps];      // of each warp's columns; in the band's first warp, of those from its begin on
  std::uint16_t cells[kRowsTogether][kThreads];
};

/// Returns the minimum of `value` over lanes [first, own lane] of the warp.
__device__ __forceinline__ std::int32_t least_up_to(std::int32_t value, int first, int lane) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const std::int32_t other = shuffle(value, lane >= step ? lane - step : lane);
    if (lane - step >= first && other < value) value = other;
  }
  return value;
}

__device__ __forceinline__ float distance_of(const float (&own)[kSketchWidth], const float* other) {
  constexpr int kSums = 8;
  float sums[kSums] = {};
#pragma unroll
  for (int i = 0; i < kSketchWidth; ++i) {
    const float difference = other[i] - own[i];
    sums[i % kSums] += difference * difference;
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum += sums[i];
  return fminf(1.0f, sqrtf(sum));
}

/// Each of a pair's cells [n, kThreads] holds the cost of replacing, and the move in the two lowest bits.
__global__ void align_pairs(const DevicePair* pairs, const float* sketches,  // [rows, kSketchWidth]
                            std::int64_t stride) {
  AlignShared& shared = shared_memory<AlignShared>();
  const DevicePair pair = pairs[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const auto load_sketch = [&](int row) {  // the first warp loads the sketch of token `row`, counted from 1
    if (thread < kSketchWidth && row <= pair.n)
      shared.sketch[row % 2][thread] = sketches[pair.text[row - 1] * stride + thread];
  };
  float own[kSketchWidth] = {};  // the sketch of the token before column j
  int loaded = 0;
  shared.cost[0][thread] = thread < kBand ? kOne * thread : kFar;
  load_sketch(1);
  sync_block();
  for (int row = 1; row <= pair.n; ++row) {
    const Band columns = band(row, pair.m), before = band(row - 1, pair.m);
    const int begin = static_cast<int>(columns.begin), first = begin % kThreads;
    const int j = begin + (thread - first + kThreads) % kThreads;
    const bool inside = j < columns.end;
    load_sketch(row + 1);
    const std::int32_t* cost = shared.cost[(row - 1) % 2];
    const auto cost_before = [&](int at) { return at >= before.begin && at < before.end ? cost[at % kThreads] : kFar; };
    std::int32_t best = kFar, replaced = 0;
    Move move = kAdd;
    if (inside) {
      best = cost_before(j) + kOne;
      if (j > 0) {
        if (loaded != j) {
          const float* in = sketches + pair.other[j - 1] * stride;
#pragma unroll
          for (int i = 0; i < kSketchWidth; ++i) own[i] = in[i];
          loaded = j;
        }
        replaced = cost_of(distance_of(own, shared.sketch[row % 2]));
        const std::int32_t diagonal = cost_before(j - 1) + replaced;
        if (diagonal <= best) best = diagonal, move = kReplace;
      }
    }
    // Skipping tokens of the other text costs the minimum of best(k) + (j - k) over the columns k before j. The columns
    // begin at thread `first`, in the middle of a warp, and wrap around.
    const int split = first % kWarp, middle = first / kWarp;
    const int from = warp == middle && lane >= split ? split : 0;
    const std::int32_t value = best - kOne * (j - begin);
    const std::int32_t up_to = least_up_to(value, from, lane);
    const std::int32_t previous = shuffle(up_to, lane > 0 ? lane - 1 : 0);
    std::int32_t skipped = lane > from ? previous : kFar;
    if (lane == kWarp - 1) shared.least[warp] = up_to;
    sync_block();
    const int pieces = warp == middle && lane < split ? kWarps : (warp - middle + kWarps) % kWarps;
    for (int p = 0; p < pieces; ++p) {
      const std::int32_t other = shared.least[(middle + p) % kWarps];
      if (other < skipped) skipped = other;
    }
    skipped += kOne * (j - begin);
    if (inside) {
      if (j > begin && skipped < best) best = skipped, move = kSkip;
      if (best > kFar) best = kFar;
    }
    pair.cells[static_cast<std::int64_t>(row - 1) * kThreads + thread] =  // whole rows: they are loaded whole, too
        static_cast<std::uint16_t>(replaced << 2 | static_cast<int>(move));
    shared.cost[row % 2][thread] = inside ? best : kFar;
    sync_block();
  }
  // The path is traced back from the cheapest end, the first among equals: all threads load rows of cells into shared
  // memory, and one thread follows the path.
  const Band columns = band(pair.n, pair.m);
  int j = 0;
  if (thread == 0) {
    std::int32_t least = kFar + kOne;
    for (int at = static_cast<int>(columns.begin); at < columns.end; ++at) {
      const std::int32_t cost = shared.cost[pair.n % 2][at % kThreads];
      if (cost < least) least = cost, j = at;
    }
    *pair.cost = least;
  }
  for (int end = pair.n; end > 0; end -= kRowsTogether) {
    const int begin = end > kRowsTogether ? end - kRowsTogether : 0;
    sync_block();
    for (int row = begin; row < end; ++row)
      shared.cells[row - begin][thread] = pair.cells[static_cast<std::int64_t>(row) * kThreads + thread];
    sync_block();
    for (int i = end; thread == 0 && i > begin;) {
      const int cell = shared.cells[i - 1 - begin][j % kThreads];
      const auto move = static_cast<Move>(cell & 3);
      if (move == kSkip) {
        --j;
        continue;
      }
      pair.to[i - 1] = j > 0 ? j - 1 : 0;
      pair.mismatch[i - 1] = move == kReplace ? cell >> 2 : kOne;
      if (move == kReplace) --j;
      --i;
    }
  }
}

}  // namespace

void launch_align(Stream stream, const DevicePair* pairs, std::int64_t count, ConstTensorView sketches) {
  if (count == 0) return;
  launch(stream, dim3(static_cast<unsigned>(count)), kThreads, sizeof(AlignShared), align_pairs, pairs,
         reinterpret_cast<const float*>(sketches.data), sketches.stride);
}

}  // namespace baton::cuda
