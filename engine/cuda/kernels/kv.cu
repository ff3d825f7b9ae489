// SPDX-License-Identifier: Apache-2.0
// Kernels that write and read the KV cache: rotation, store_kv (alone, and fused with the norms and the rotation of the
// queries), insert_kv, load_kv, save_kv, value_deviation. A slab is [K][capacity][D], for keys and values alike: the
// keys of a block of positions are contiguous rows of 16-byte chunks, as tensor-core tiles need them. Threads work on
// chunks of eight columns.
#include "engine/backend/backend.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kChunk = 8;
constexpr unsigned kThreads = 128;
constexpr unsigned kWarp = 32;

/// cos and sin of T rows, [T, half] each.
struct Angles {
  const float* cos;
  const float* sin;
  std::int64_t cos_stride, sin_stride;
  int half;
  int unused = 0;  // no padding: launches are compared as bytes (launch_log.h)
};

Angles angles_of(const RopeAngles& angles) {
  return {elements<float>(angles.cos), elements<float>(angles.sin), angles.cos.stride, angles.sin.stride,
          static_cast<int>(angles.cos.cols)};
}

__device__ __forceinline__ float rotated_low(float a, float b, float cos, float sin) { return fmaf(-b, sin, a * cos); }
__device__ __forceinline__ float rotated_high(float a, float b, float cos, float sin) { return fmaf(a, sin, b * cos); }

__global__ void rope_rows(float* x,  // [T, heads * width]
                          std::int64_t stride, int width, int heads, Angles angles) {
  const std::int64_t row = blockIdx.x;
  const float* cos = angles.cos + row * angles.cos_stride;
  const float* sin = angles.sin + row * angles.sin_stride;
  for (int pair = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); pair < heads * angles.half;
       pair += static_cast<int>(gridDim.y * kThreads)) {
    const int j = pair % angles.half;
    float* at = x + row * stride + pair / angles.half * width + j;
    const float a = at[0], b = at[angles.half];
    at[0] = rotated_low(a, b, cos[j], sin[j]);
    at[angles.half] = rotated_high(a, b, cos[j], sin[j]);
  }
}

/// Rounds a value to the element type of the cache.
template <class Cache>
__device__ __forceinline__ float rounded(float value) {
  return to_float(from_float<Cache>(value));
}

template <class Cache, class In, bool kAligned>
__global__ void store_rows(const KvSlab* slabs, int kv_heads, int width, DeviceRows rows,
                           Strided<const In> k,  // [T, K * D]
                           Strided<const In> v,  // [T, K * D]
                           Angles angles) {
  const std::int64_t row = blockIdx.x;
  if (rows.sequence[row] < 0) return;
  const KvSlab slab = slabs[rows.sequence[row]];
  const std::int64_t position = rows.position[row];
  const float* cos = angles.cos + row * angles.cos_stride;
  const float* sin = angles.sin + row * angles.sin_stride;
  const int chunks = width / kChunk, half = angles.half;
  for (int unit = static_cast<int>(threadIdx.x); unit < kv_heads * chunks; unit += static_cast<int>(kThreads)) {
    const int head = unit / chunks, first = unit % chunks * kChunk;
    const In* key = k.row(row) + head * width;
    float own[kChunk], value[kChunk];
    read<kChunk, kAligned>(own, key + first);
    read<kChunk, kAligned>(value, v.row(row) + head * width + first);
    for (int i = 0; i < kChunk; ++i) own[i] = rounded<Cache>(own[i]);
    if (slab.raw_keys != nullptr) {
      write<kChunk, true>(reinterpret_cast<Cache*>(slab.raw_keys) + (position * kv_heads + head) * width + first, own);
    }
    float out[kChunk];
    for (int i = 0; i < kChunk; ++i) {  // every thread rotates its own columns, whatever the rotated width
      const int j = first + i;
      if (j < half) {
        out[i] = rotated_low(own[i], rounded<Cache>(to_float(key[j + half])), cos[j], sin[j]);
      } else if (j < 2 * half) {
        out[i] = rotated_high(rounded<Cache>(to_float(key[j - half])), own[i], cos[j - half], sin[j - half]);
      } else {
        out[i] = own[i];
      }
    }
    const std::int64_t at = (static_cast<std::int64_t>(head) * slab.capacity + position) * width + first;
    write<kChunk, true>(reinterpret_cast<Cache*>(slab.keys) + at, out);
    write<kChunk, true>(reinterpret_cast<Cache*>(slab.values) + at, value);
  }
}

/// The head of a warp between the warp's two passes.
struct HeadShared {
  float own[kThreads / kWarp][kMaxHeadDim];
};

struct DeviceQkv {
  Strided<float> q;        // [T, H * D]
  Strided<const float> k;  // [T, K * D]
  Strided<const float> v;  // [T, K * D]
  int heads, kv_heads, width;
  int unused = 0;  // no padding
};

/// One warp per head: query heads first, then kv heads. The results equal those of launch_head_rms_norm,
/// launch_store_kv and launch_rope bit for bit.
template <class Cache>
__global__ void norm_store_rope_rows(DeviceQkv qkv, DeviceNorms norms, const KvSlab* slabs, DeviceRows rows,
                                     Angles angles) {
  HeadShared& shared = shared_memory<HeadShared>();
  const int heads = qkv.heads, kv_heads = qkv.kv_heads, width = qkv.width;
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
  const int head = static_cast<int>(blockIdx.y * (kThreads / kWarp)) + warp;
  const std::int64_t row = blockIdx.x;
  const bool is_query = head < heads;
  const int kv_head = head - heads;
  if (kv_head >= kv_heads || (!is_query && rows.sequence[row] < 0)) return;  // a whole warp
  const float* in = is_query ? qkv.q.row(row) + head * width : qkv.k.row(row) + kv_head * width;
  const float* norm = is_query ? norms.q : norms.k;
  float scale = 1.0f;
  if (norm != nullptr) {
    float squares = 0.0f;
    for (int c = lane; c < width; c += static_cast<int>(kWarp)) squares = fmaf(in[c], in[c], squares);
    scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + norms.eps);
  }
  float* own = shared.own[warp];
  for (int c = lane; c < width; c += static_cast<int>(kWarp)) {
    const float value = norm != nullptr ? in[c] * scale * norm[c] : in[c];
    own[c] = is_query ? value : rounded<Cache>(value);
  }
  sync_warp();
  const float* cos = angles.cos + row * angles.cos_stride;
  const float* sin = angles.sin + row * angles.sin_stride;
  const int half = angles.half;
  const auto turned = [&](int j) {
    if (j < half) return rotated_low(own[j], own[j + half], cos[j], sin[j]);
    if (j < 2 * half) return rotated_high(own[j - half], own[j], cos[j - half], sin[j - half]);
    return own[j];
  };
  if (is_query) {
    float* to = qkv.q.row(row) + head * width;
    for (int c = lane; c < width; c += static_cast<int>(kWarp)) to[c] = turned(c);
    return;
  }
  const KvSlab slab = slabs[rows.sequence[row]];
  const std::int64_t position = rows.position[row];
  const std::int64_t at = (static_cast<std::int64_t>(kv_head) * slab.capacity + position) * width;
  const float* value = qkv.v.row(row) + kv_head * width;
  for (int c = lane; c < width; c += static_cast<int>(kWarp)) {
    if (slab.raw_keys != nullptr) {
      reinterpret_cast<Cache*>(slab.raw_keys)[(position * kv_heads + kv_head) * width + c] = from_float<Cache>(own[c]);
    }
    reinterpret_cast<Cache*>(slab.keys)[at + c] = from_float<Cache>(turned(c));
    reinterpret_cast<Cache*>(slab.values)[at + c] = from_float<Cache>(value[c]);
  }
}

/// One block per row of a layer. The corrected keys go through shared memory, because the two columns of a rotation
/// belong to different threads.
template <class Cache, class In, bool kAligned>
__global__ void place_rows(const DevicePlacement* layers,
                           const DeviceCorrection* offsets,  // [layers, corrections]
                           int corrections, int kv_heads, int width, std::int64_t begin, Angles angles) {
  float* keys = &shared_memory<float>();  // [K * D]
  const DevicePlacement layer = layers[blockIdx.y];
  const KvSlab slab = layer.slab;
  const std::int64_t row = blockIdx.x, position = begin + row;
  const int columns = kv_heads * width;
  const float* cos = angles.cos + row * angles.cos_stride;
  const float* sin = angles.sin + row * angles.sin_stride;
  for (int first = static_cast<int>(threadIdx.x) * kChunk; first < columns;
       first += static_cast<int>(kThreads) * kChunk) {
    float key[kChunk] = {}, value[kChunk] = {};
    if (layer.k != nullptr) {
      read<kChunk, kAligned>(key, reinterpret_cast<const In*>(layer.k) + row * layer.k_stride + first);
      read<kChunk, kAligned>(value, reinterpret_cast<const In*>(layer.v) + row * layer.v_stride + first);
    }
    for (int i = 0; i < corrections; ++i) {
      const DeviceCorrection one = offsets[static_cast<std::int64_t>(blockIdx.y) * corrections + i];
      if (one.offset == nullptr) continue;
      const Bf16* offset = reinterpret_cast<const Bf16*>(one.offset) + one.row[row] * one.stride + first;
      float of_key[kChunk], of_value[kChunk];
      read<kChunk, kAligned>(of_key, offset);
      read<kChunk, kAligned>(of_value, offset + columns);
      for (int c = 0; c < kChunk; ++c) {
        key[c] = fmaf(one.weight, of_key[c], key[c]);
        value[c] = fmaf(one.weight, of_value[c], value[c]);
      }
    }
    for (int c = 0; c < kChunk; ++c) key[c] = rounded<Cache>(key[c]);
    write<kChunk, true>(keys + first, key);
    if (slab.raw_keys != nullptr)
      write<kChunk, true>(reinterpret_cast<Cache*>(slab.raw_keys) + position * columns + first, key);
    const std::int64_t at = (static_cast<std::int64_t>(first / width) * slab.capacity + position) * width;
    write<kChunk, true>(reinterpret_cast<Cache*>(slab.values) + at + first % width, value);
  }
  sync_block();
  for (int first = static_cast<int>(threadIdx.x) * kChunk; first < columns;
       first += static_cast<int>(kThreads) * kChunk) {
    const int j = first % width, half = angles.half;
    float own[kChunk], turned[kChunk];
    read<kChunk, true>(own, keys + first);
    if (kAligned && j < 2 * half) {  // the other columns of the rotation's pairs are one chunk, too
      const bool low = j < half;
      float other[kChunk], c[kChunk], s[kChunk];
      read<kChunk, true>(other, keys + (low ? first + half : first - half));
      read<kChunk, true>(c, cos + (low ? j : j - half));
      read<kChunk, true>(s, sin + (low ? j : j - half));
      for (int i = 0; i < kChunk; ++i)
        turned[i] = low ? rotated_low(own[i], other[i], c[i], s[i]) : rotated_high(other[i], own[i], c[i], s[i]);
    } else {
      for (int i = 0; i < kChunk; ++i) {
        turned[i] = j + i < half ? rotated_low(own[i], keys[first + i + half], cos[j + i], sin[j + i])
                    : j + i < 2 * half
                        ? rotated_high(keys[first + i - half], own[i], cos[j + i - half], sin[j + i - half])
                        : own[i];
      }
    }
    const std::int64_t at = (static_cast<std::int64_t>(first / width) * slab.capacity + position) * width;
    write<kChunk, true>(reinterpret_cast<Cache*>(slab.keys) + at + first % width, turned);
  }
}

template <class Cache, bool kAligned>
__global__ void load_rows(Strided<float> k,  // [n, K * D]
                          Strided<float> v,  // [n, K * D]
                          KvSlab slab, int kv_heads, int width, std::int64_t begin) {
  const std::int64_t row = blockIdx.x;
  const int chunks = width / kChunk;
  for (int unit = static_cast<int>(threadIdx.x); unit < kv_heads * chunks; unit += static_cast<int>(kThreads)) {
    const int head = unit / chunks, first = unit % chunks * kChunk;
    const std::int64_t at = (static_cast<std::int64_t>(head) * slab.capacity + begin + row) * width + first;
    float values[kChunk];
    read<kChunk, true>(values, reinterpret_cast<const Cache*>(slab.keys) + at);
    write<kChunk, kAligned>(k.row(row) + head * width + first, values);
    read<kChunk, true>(values, reinterpret_cast<const Cache*>(slab.values) + at);
    write<kChunk, kAligned>(v.row(row) + head * width + first, values);
  }
}

template <class Cache, bool kAligned>
__global__ void save_rows(Strided<Cache> raw_k,  // [n, K * D]
                          Strided<Cache> v,      // [n, K * D]
                          KvSlab slab, int kv_heads, int width, std::int64_t begin) {
  const std::int64_t row = blockIdx.x;
  const int chunks = width / kChunk;
  for (int unit = static_cast<int>(threadIdx.x); unit < kv_heads * chunks; unit += static_cast<int>(kThreads)) {
    const int head = unit / chunks, first = unit % chunks * kChunk;
    float values[kChunk];
    read<kChunk, true>(
        values, reinterpret_cast<const Cache*>(slab.raw_keys) + ((begin + row) * kv_heads + head) * width + first);
    write<kChunk, kAligned>(raw_k.row(row) + head * width + first, values);
    read<kChunk, true>(values, reinterpret_cast<const Cache*>(slab.values) +
                                   (static_cast<std::int64_t>(head) * slab.capacity + begin + row) * width + first);
    write<kChunk, kAligned>(v.row(row) + head * width + first, values);
  }
}

struct DeviationShared {
  double of_warp[kThreads / kWarp];
};

template <class Cache>
__global__ void deviation_rows(float* out,  // [T]
                               const KvSlab* slabs, int kv_heads, int width, DeviceRows rows,
                               Strided<const float> v,  // [T, K * D]
                               ValueMeasure measure) {
  DeviationShared& shared = shared_memory<DeviationShared>();
  const std::int64_t row = blockIdx.x;
  if (rows.sequence[row] < 0) return;  // the whole block
  const KvSlab slab = slabs[rows.sequence[row]];
  const unsigned warp = threadIdx.x / kWarp;
  const bool squared = measure == ValueMeasure::squared;
  double parts = 0;  // the warp's heads: squared differences, or cosines
  for (int head = static_cast<int>(warp); head < kv_heads; head += static_cast<int>(kThreads / kWarp)) {
    const float* own = v.row(row) + head * width;
    const Cache* other = reinterpret_cast<const Cache*>(slab.values) +
                         (static_cast<std::int64_t>(head) * slab.capacity + rows.position[row]) * width;
    double dot = 0, fresh = 0, cached = 0, squares = 0;
    for (int c = static_cast<int>(threadIdx.x % kWarp); c < width; c += static_cast<int>(kWarp)) {
      const double a = rounded<Cache>(own[c]), b = to_float(other[c]);
      dot += a * b;
      fresh += a * a;
      cached += b * b;
      squares += (a - b) * (a - b);
    }
    if (squared) {
      parts += warp_sum(squares);
      continue;
    }
    dot = warp_sum(dot);
    fresh = warp_sum(fresh);
    cached = warp_sum(cached);
    const double norms = sqrt(fresh * cached);  // for equal values exactly their dot product
    parts += norms > 0 ? dot / norms : (fresh == cached ? 1.0 : 0.0);
  }
  if (threadIdx.x % kWarp == 0) shared.of_warp[warp] = parts;
  sync_block();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (const double part : shared.of_warp) sum += part;
  out[row] = static_cast<float>(squared ? sum : 1.0 - sum / kv_heads);
}

}  // namespace

void launch_rope(Stream stream, TensorView x, std::int32_t head_dim, const RopeAngles& angles) {
  const std::int64_t heads = x.cols / head_dim, pairs = heads * angles.cos.cols;
  if (x.rows == 0 || pairs == 0) return;
  launch(stream, dim3(static_cast<unsigned>(x.rows), static_cast<unsigned>(blocks_of(pairs, kThreads))), kThreads, 0,
         rope_rows, elements<float>(x), x.stride, head_dim, static_cast<int>(heads), angles_of(angles));
}

void launch_store_kv(Stream stream, const KvSlab* slabs, const KvShape& shape, const DeviceRows& rows,
                     ConstTensorView k, ConstTensorView v, const RopeAngles& angles) {
  if (rows.count == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    with_type(k.dtype, [&]<class In>(In) {
      with_flag(is_aligned(k, kChunk) && is_aligned(v, kChunk), [&](auto aligned) {
        launch(stream, dim3(static_cast<unsigned>(rows.count)), kThreads, 0,
               store_rows<Cache, In, decltype(aligned)::value>, slabs, shape.kv_heads, shape.head_dim, rows,
               strided<In>(k), strided<In>(v), angles_of(angles));
      });
    });
  });
}

void launch_norm_store_rope(Stream stream, const QkvRows& qkv, const DeviceNorms& norms, const KvSlab* slabs,
                            const KvShape& shape, const DeviceRows& rows, const RopeAngles& angles) {
  if (rows.count == 0) return;
  const std::int64_t heads = qkv.q.cols / shape.head_dim;
  const DeviceQkv call{strided<float>(qkv.q), strided<float>(ConstTensorView(qkv.k)),
                       strided<float>(qkv.v), static_cast<int>(heads),
                       shape.kv_heads,        shape.head_dim};
  const dim3 grid(static_cast<unsigned>(rows.count),
                  static_cast<unsigned>(blocks_of(heads + shape.kv_heads, kThreads / kWarp)));
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    launch(stream, grid, kThreads, sizeof(HeadShared), norm_store_rope_rows<Cache>, call, norms, slabs, rows,
           angles_of(angles));
  });
}

void launch_insert_kv(Stream stream, const InsertedKv& placed, const KvShape& shape, std::int64_t begin,
                      const RopeAngles& angles) {
  const std::int64_t rows = angles.cos.rows;
  if (rows == 0 || placed.count == 0) return;
  const auto shared =
      static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.head_dim) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(placed.count));
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    with_type(placed.dtype, [&]<class In>(In) {
      with_flag(placed.aligned, [&](auto aligned) {
        launch(stream, grid, kThreads, shared, place_rows<Cache, In, decltype(aligned)::value>, placed.layers,
               placed.offsets, placed.corrections, shape.kv_heads, shape.head_dim, begin, angles_of(angles));
      });
    });
  });
}

void launch_load_kv(Stream stream, TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape,
                    std::int32_t begin) {
  if (k.rows == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    with_flag(is_aligned(k, kChunk) && is_aligned(v, kChunk), [&](auto aligned) {
      launch(stream, dim3(static_cast<unsigned>(k.rows)), kThreads, 0, load_rows<Cache, decltype(aligned)::value>,
             strided<float>(k), strided<float>(v), slab, shape.kv_heads, shape.head_dim, std::int64_t{begin});
    });
  });
}

void launch_save_kv(Stream stream, TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape,
                    std::int32_t begin) {
  if (raw_k.rows == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    with_flag(is_aligned(raw_k, kChunk) && is_aligned(v, kChunk), [&](auto aligned) {
      launch(stream, dim3(static_cast<unsigned>(raw_k.rows)), kThreads, 0, save_rows<Cache, decltype(aligned)::value>,
             strided<Cache>(raw_k), strided<Cache>(v), slab, shape.kv_heads, shape.head_dim, std::int64_t{begin});
    });
  });
}

void launch_value_deviation(Stream stream, float* out, const KvSlab* slabs, const KvShape& shape,
                            const DeviceRows& rows, ConstTensorView v, ValueMeasure measure) {
  if (rows.count == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    launch(stream, dim3(static_cast<unsigned>(rows.count)), kThreads, sizeof(DeviationShared), deviation_rows<Cache>,
           out, slabs, shape.kv_heads, shape.head_dim, rows, strided<float>(v), measure);
  });
}

}  // namespace baton::cuda
