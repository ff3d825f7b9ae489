// SPDX-License-Identifier: Apache-2.0
// The launches of the kernels, one family per .cu file. Host code needs no CUDA header to call them.
//
// All pointers are device memory. The caller has checked the shapes of views (engine/backend/backend.h). Launches of no
// rows do nothing. Element types are f32 and bf16 unless a comment says otherwise. Errors: BackendError.
#pragma once

#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// The arguments of insert_kv for one layer.
struct DevicePlacement {
  KvSlab slab;
  const std::byte* k = nullptr;  // [T, K D], or null
  const std::byte* v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;
};

/// A KvCorrection for one layer.
struct DeviceCorrection {
  const std::uint16_t* offset = nullptr;  // [m, 2 K D] bf16, or null
  std::int64_t stride = 0;
  const std::int32_t* row = nullptr;  // [T]
  float weight = 0;
  std::int32_t unused = 0;  // no padding: arrays of it are compared as bytes
};

/// RowSpan in device memory.
struct DeviceRows {
  const std::int32_t* sequence = nullptr;   // [T]
  const std::int32_t* position = nullptr;   // [T]
  const std::int32_t* key_begin = nullptr;  // [T]
  std::int64_t count = 0;
};

// few_rows.cu, few_rows_tensor.cu. Products of at most kFewRows rows of bf16, with all rows aligned to 16 bytes.
inline constexpr std::int64_t kFewRows = 8;
bool takes_few_rows(const Product& product);
void launch_few_rows(Stream stream, const Product& product);         // fp32 units
void launch_few_rows_tensor(Stream stream, const Product& product);  // tensor cores

// rows.cu. A null index stands for 0, 1, 2, ...
/// out[out_index[i]] = in[in_index[i]] for `rows` rows, converted; `in` may be f16. Columns of out beyond those of in
/// become zero.
void launch_copy_rows(Stream stream, TensorView out, const std::int32_t* out_index, ConstTensorView in,
                      const std::int32_t* in_index, std::int64_t rows);
void launch_add(Stream stream, TensorView x, ConstTensorView delta);  // f32
/// out [rows, stride]: in the first `cols` columns random_weight of index row * cols + column, rounded to bf16; zero in
/// the others.
void launch_random_rows(Stream stream, TensorView out, std::int64_t cols, std::uint64_t seed, float deviation);
// The views are f32 or bf16.
void launch_silu_mul(Stream stream, TensorView out, ConstTensorView gate_up, const ClampedGate& clamped);
void launch_gelu_mul(Stream stream, TensorView out, ConstTensorView gate_up);
/// x[index[i]] += weight[i] * in[i]; f32
void launch_add_weighted(Stream stream, TensorView x, ConstTensorView in, const std::int32_t* index,
                         const float* weight);
void launch_scale(Stream stream, TensorView x, float factor);  // f32
void launch_soft_cap(Stream stream, TensorView x, float cap);  // f32
// See StreamOperations; f32. weight of scale_columns [C]
void launch_mix(Stream stream, TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                std::int64_t width);
void launch_correct(Stream stream, TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                    std::int32_t active);
void launch_scale_columns(Stream stream, TensorView out, ConstTensorView x, const float* weight);

// recurrence.cu. All f32
/// StateRun in device memory.
struct DeviceRun {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  const float* from = nullptr;
  float* to = nullptr;
};
/// StateRows in device memory.
struct DeviceStates {
  const std::int32_t* rows = nullptr;    // [n]
  const DeviceRun* runs = nullptr;       //
  const std::int32_t* chains = nullptr;  // [sequences + 1] the first run of each sequence
  std::int64_t sequences = 0;
  std::int64_t count = 0;  // n
  std::int64_t offset = 0;
};
struct DeviceConv {
  const float* taps = nullptr;  // [length, columns]
  const float* bias = nullptr;  // [columns] or null
  std::int32_t length = 0;
  std::int32_t silu = 0;
};
void launch_convolve(Stream stream, TensorView out, ConstTensorView x, const DeviceConv& weights,
                     const DeviceStates& states);
/// DeltaShape without padding.
struct DeltaKernelShape {
  std::int32_t key_heads, value_heads, key_dim, value_dim, tiled;
};
struct DeviceDelta {
  const float* rate = nullptr;  // [value_heads]
  const float* bias = nullptr;  // [value_heads]
  float* keys = nullptr;        // scratch [n, 2 key_heads * key_dim]
};
void launch_delta_rule(Stream stream, TensorView out, const DeltaRows& in, const DeltaKernelShape& shape,
                       const DeviceDelta& weights, const DeviceStates& states);
struct ScanKernelShape {
  std::int32_t heads, head_dim, groups, state;
};
struct DeviceScan {
  const float* rate = nullptr;  // [heads]
  const float* bias = nullptr;  // [heads]
  const float* skip = nullptr;  // [heads]
  float least = 0.0f, most = 0.0f;
};
void launch_scan(Stream stream, TensorView out, const ScanRows& in, const ScanKernelShape& shape,
                 const DeviceScan& weights, const DeviceStates& states);
void launch_multiply(Stream stream, TensorView x, ConstTensorView by, GateFunction function);

// norm.cu. x and delta f32, out f32 or bf16; weight [C] f32
void launch_rms_norm(Stream stream, TensorView out, ConstTensorView x, const float* weight, float eps);
void launch_add_rms_norm(Stream stream, TensorView out, TensorView x, ConstTensorView delta, const float* weight,
                         float eps);
void launch_head_rms_norm(Stream stream, TensorView x, const float* weight, std::int64_t width, float eps);
// See StreamOperations; f32
void launch_match_rms(Stream stream, TensorView x, ConstTensorView like, float least);
void launch_keep_peaks(Stream stream, TensorView x, float deviations);

// kv.cu. A slab is [K][capacity][D] for the keys and the same for the values; slabs [number of sequences]
void launch_rope(Stream stream, TensorView x, std::int32_t head_dim, const RopeAngles& angles);
void launch_store_kv(Stream stream, const KvSlab* slabs, const KvShape& shape, const DeviceRows& rows,
                     ConstTensorView k, ConstTensorView v, const RopeAngles& angles);
/// Weights [D] of q- and k-norm on the device; null: the model has none.
struct DeviceNorms {
  const float* q;
  const float* k;
  float eps;
  float unused = 0.0f;  // no padding
};
/// Norms of q and k (where their weights are not null), store_kv and rope of q, in one pass; k is not changed.
void launch_norm_store_rope(Stream stream, const QkvRows& qkv, const DeviceNorms& norms, const KvSlab* slabs,
                            const KvShape& shape, const DeviceRows& rows, const RopeAngles& angles);
struct InsertedKv {
  const DevicePlacement* layers = nullptr;  // [count]
  int count = 0;
  DType dtype = DType::f32;  // of all k and v
  bool aligned = false;      // rows of k, v, offsets and angles are aligned to 16 bytes; R / 2 is a multiple of 8
  const DeviceCorrection* offsets = nullptr;  // [count, corrections]
  int corrections = 0;
};
void launch_insert_kv(Stream stream, const InsertedKv& placed, const KvShape& shape, std::int64_t begin,
                      const RopeAngles& angles);
void launch_load_kv(Stream stream, TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape,
                    std::int32_t begin);
void launch_save_kv(Stream stream, TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape,
                    std::int32_t begin);
void launch_value_deviation(Stream stream, float* out, const KvSlab* slabs, const KvShape& shape,
                            const DeviceRows& rows, ConstTensorView v, ValueMeasure measure);

// align.cu. A pair of texts to be aligned, with memory for 2 kBand cells per token and for the result.
struct DevicePair {
  const std::int32_t* text = nullptr;   // [n] rows of the sketches
  const std::int32_t* other = nullptr;  // [m]
  std::uint16_t* cells = nullptr;       // [n, 2 kBand]
  std::int32_t* to = nullptr;           // [n]
  std::int32_t* mismatch = nullptr;     // [n]
  std::int32_t* cost = nullptr;         // the total cost; not written where n is 0
  std::int32_t n = 0, m = 0;
};
void launch_align(Stream stream, const DevicePair* pairs, std::int64_t count, ConstTensorView sketches);

// choose.cu. logits [T, V] f32; out and choices [T]
void launch_choose(Stream stream, ChosenToken* out, ConstTensorView logits, const TokenChoice* choices);

}  // namespace baton::cuda
