// SPDX-License-Identifier: Apache-2.0
// The next token of each row of logits, one block per row: engine/backend/host_operations.cpp in parallel, with the
// same ids. Only maxima, counts and sums of integers decide, so the order of the threads does not matter. Greedy rows
// are read once, and twice with entropy; top-k and top-p add passes over a row that is in the cache.
#include "engine/backend/host_operations.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBins = 256;
constexpr int kWeightBits = 40;  // bits of the results of weight_of

/// A sum of 64 bits in shared memory, which has fast atomic additions of 32 bits only: those of 64 bits are loops that
/// wait for one another.
struct Bin {
  std::uint32_t low, high;

  __device__ __forceinline__ void add(std::uint64_t amount) {
    const auto own = static_cast<std::uint32_t>(amount);
    const std::uint32_t before = fetch_add(&low, own);
    const std::uint32_t more = static_cast<std::uint32_t>(amount >> 32) + (before + own < before ? 1 : 0);
    if (more != 0) fetch_add(&high, more);
  }
  __device__ __forceinline__ std::uint64_t total() const { return static_cast<std::uint64_t>(high) << 32 | low; }
};

struct ChooseShared {
  Bin bins[kBins];
  std::uint64_t of_warp[kWarps];
  double first[kWarps], second[kWarps];
  float highest[kWarps];
  std::int32_t id[kWarps];
  std::uint64_t found, before;  // broadcast from one thread to all
};

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) < INFINITY; }

/// Maps floats that are not NaN to integers of the same order.
__device__ __forceinline__ std::uint32_t order_of(float value) {
  const std::uint32_t bits = bits_of(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

template <class Value>
__device__ __forceinline__ Value warp_total(Value value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

/// Returns the sum over the block to every thread.
__device__ std::uint64_t block_total(std::uint64_t value, ChooseShared& shared) {
  value = warp_total(value);
  sync_block();  // the parts of the last call have been read
  if (threadIdx.x % kWarp == 0) shared.of_warp[threadIdx.x / kWarp] = value;
  sync_block();
  std::uint64_t total = 0;
  for (const std::uint64_t part : shared.of_warp) total += part;
  return total;
}

/// Finds the highest finite logit of the row and the lowest id that has it; -1 where no logit is finite.
__device__ void find_highest(const float* logits, int count, ChooseShared& shared, float& highest, int& best) {
  highest = -INFINITY;
  best = -1;
  for (int id = static_cast<int>(threadIdx.x); id < count; id += kThreads) {
    const float logit = logits[id];
    if (logit > highest && is_finite(logit)) highest = logit, best = id;
  }
  const auto take = [&](float other, int id) {
    if (id >= 0 && (best < 0 || other > highest || (other == highest && id < best))) highest = other, best = id;
  };
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(highest, mask);
    const int id = shuffle_xor(best, mask);
    take(other, id);
  }
  if (threadIdx.x % kWarp == 0) {
    shared.highest[threadIdx.x / kWarp] = highest;
    shared.id[threadIdx.x / kWarp] = best;
  }
  sync_block();
  for (int warp = 0; warp < kWarps; ++warp) take(shared.highest[warp], shared.id[warp]);
}

__device__ float entropy_of_row(const float* logits, int count, float highest, ChooseShared& shared) {
  double sum = 0.0, weighted = 0.0;
  for (int id = static_cast<int>(threadIdx.x); id < count; id += kThreads) {
    const float below = logits[id] - highest;
    if (!(below > kEntropyReach && below <= 0.0f)) continue;
    const double share = exp(static_cast<double>(below));
    sum += share;
    weighted += share * below;
  }
  sum = warp_total(sum);
  weighted = warp_total(weighted);
  if (threadIdx.x % kWarp == 0) {
    shared.first[threadIdx.x / kWarp] = sum;
    shared.second[threadIdx.x / kWarp] = weighted;
  }
  sync_block();
  sum = weighted = 0.0;
  for (int warp = 0; warp < kWarps; ++warp) sum += shared.first[warp], weighted += shared.second[warp];
  return static_cast<float>(log(sum) - weighted / sum);
}

/// Visits the keys key_of(id), of `bits` bits, from the largest down and adds up amount_of(id). Returns the key at
/// which the sum reaches `target` (at least 1, at most the total); `target` becomes the amount still missing before
/// that key.
template <class KeyOf, class AmountOf>
__device__ std::uint64_t reach(int count, int bits, std::uint64_t& target, const KeyOf& key_of,
                               const AmountOf& amount_of, ChooseShared& shared) {
  std::uint64_t found = 0;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    sync_block();
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) shared.bins[bin] = {0, 0};
    sync_block();
    for (int id = static_cast<int>(threadIdx.x); id < count; id += kThreads) {
      const std::uint64_t amount = amount_of(id);
      if (amount == 0) continue;
      const std::uint64_t key = key_of(id);
      if (key >> (shift + 8) == found >> (shift + 8)) shared.bins[key >> shift & (kBins - 1)].add(amount);
    }
    sync_block();
    if (threadIdx.x == 0) {
      std::uint64_t before = 0;
      int bin = kBins - 1;
      for (; bin > 0 && before + shared.bins[bin].total() < target; --bin) before += shared.bins[bin].total();
      shared.found = static_cast<std::uint64_t>(bin);
      shared.before = before;
    }
    sync_block();
    found |= shared.found << shift;
    target -= shared.before;
  }
  return found;
}

/// Returns the first id at which the sum of amount_of over ids up to it exceeds `left`, which is less than the total.
/// Every warp sums a slice of neighbouring ids; the slice with the result is searched again.
template <class AmountOf>
__device__ int find_by_id(int count, std::uint64_t left, const AmountOf& amount_of, ChooseShared& shared) {
  const int slice = (count + kWarps - 1) / kWarps;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int begin = warp * slice, end = begin + slice < count ? begin + slice : count;
  std::uint64_t own = 0;
  for (int id = begin + lane; id < end; id += kWarp) own += amount_of(id);
  own = warp_total(own);
  sync_block();
  if (lane == 0) shared.of_warp[warp] = own;
  sync_block();
  std::uint64_t before = 0;
  int holder = 0;
  while (holder < kWarps - 1 && before + shared.of_warp[holder] <= left) before += shared.of_warp[holder++];
  if (warp == holder) {
    int found = count;
    for (int first = begin; first < end && found == count; first += kWarp) {  // the same for all lanes
      const std::uint64_t amount = first + lane < end ? amount_of(first + lane) : 0;
      std::uint64_t sum = amount;  // of the lanes up to this one
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const std::uint64_t other = shuffle(sum, lane >= step ? lane - step : lane);
        if (lane >= step) sum += other;
      }
      if (before + sum > left) found = first + lane;
#pragma unroll
      for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        const int other = shuffle_xor(found, mask);
        found = other < found ? other : found;
      }
      before += shuffle(sum, kWarp - 1);
    }
    if (lane == 0) shared.found = static_cast<std::uint64_t>(found);
  }
  sync_block();
  return static_cast<int>(shared.found);
}

__global__ void choose_rows(ChosenToken* out,     // [T]
                            const float* logits,  // [T, V]
                            std::int64_t stride, int count,
                            const TokenChoice* choices) {  // [T]
  ChooseShared& shared = shared_memory<ChooseShared>();
  const TokenChoice how = choices[blockIdx.x];
  const float* row = logits + blockIdx.x * stride;
  float highest = 0.0f;
  int best = 0;
  find_highest(row, count, shared, highest, best);
  const float entropy = how.entropy != 0 && best >= 0 ? entropy_of_row(row, count, highest, shared) : 0.0f;
  if (how.temperature == 0.0f || best < 0) {
    if (threadIdx.x == 0) out[blockIdx.x] = {best, entropy};
    return;
  }

  const auto scaled = [&](int id) { return is_finite(row[id]) ? (row[id] - highest) / how.temperature : -INFINITY; };
  std::uint64_t least_order = 0;
  if (how.top_k > 0 && how.top_k < count) {
    auto target = static_cast<std::uint64_t>(how.top_k);
    const auto order = [&](int id) { return static_cast<std::uint64_t>(order_of(scaled(id))); };
    least_order = reach(
        count, 32, target, order, [](int) { return std::uint64_t{1}; }, shared);
  }
  const auto weight = [&](int id) -> std::uint64_t {
    const float value = scaled(id);
    return order_of(value) >= least_order ? weight_of(value) : 0;
  };
  const auto total_of = [&](const auto& amount_of) {
    std::uint64_t own = 0;
    for (int id = static_cast<int>(threadIdx.x); id < count; id += kThreads) own += amount_of(id);
    return block_total(own, shared);
  };
  std::uint64_t least_weight = 1;
  int last_tie = count;  // ids of weight least_weight are kept up to this id
  if (how.top_p < 1.0f) {
    auto target = static_cast<std::uint64_t>(how.top_p * static_cast<double>(total_of(weight)));
    target = target > 0 ? target : 1;
    least_weight = reach(count, kWeightBits, target, weight, weight, shared);
    const std::uint64_t ties = (target + least_weight - 1) / least_weight;
    last_tie = find_by_id(
        count, ties - 1, [&](int id) -> std::uint64_t { return weight(id) == least_weight ? 1 : 0; }, shared);
  }
  const double least = static_cast<double>(how.min_p) * static_cast<double>(kUnitWeight);
  const auto kept = [&](int id) -> std::uint64_t {
    const std::uint64_t own = weight(id);
    const bool in = own > least_weight || (own == least_weight && id <= last_tie);
    return in && static_cast<double>(own) >= least ? own : 0;
  };
  const std::uint64_t total = total_of(kept);
  auto left = static_cast<std::uint64_t>(how.uniform * static_cast<double>(total));
  left = left < total ? left : total - 1;  // the product may be rounded up
  const int id = find_by_id(count, left, kept, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = {id, entropy};
}

}  // namespace

void launch_choose(Stream stream, ChosenToken* out, ConstTensorView logits, const TokenChoice* choices) {
  if (logits.rows == 0) return;
  launch(stream, dim3(static_cast<unsigned>(logits.rows)), kThreads, sizeof(ChooseShared), choose_rows, out,
         elements<float>(logits), logits.stride, static_cast<int>(logits.cols), choices);
}

}  // namespace baton::cuda
