// SPDX-License-Identifier: Apache-2.0
// Kernels of single rows: elementwise functions and norms, and the rows of a KV slab.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend/backend.h"
#include "engine/cpu/matmul.h"
#include "engine/tensor/tensor.h"

namespace baton::cpu {

/// x[n] += delta.
void add_row(float* x, const float* delta, std::int64_t n);

/// x[n] = fma(scale, delta, x), delta bf16.
void add_scaled_row(float* x, const std::uint16_t* delta, float scale, std::int64_t n);

/// x[n] = fma(weight, in, x).
void add_weighted_row(float* x, const float* in, float weight, std::int64_t n);

/// out[n] = silu(gate) * up, with silu(g) = g / (1 + exp(-g)).
void silu_mul_row(float* out, const float* gate, const float* up, std::int64_t n);

/// out[n] = gelu(gate) * up, with the tanh form of gelu.
void gelu_mul_row(float* out, const float* gate, const float* up, std::int64_t n);

/// out[n] = (up + 1) * silu(slope * gate) / slope, with the gate clamped from above and up from both sides.
void clamped_silu_mul_row(float* out, const float* gate, const float* up, const ClampedGate& how, std::int64_t n);

/// x[n] *= factor.
void scale_row(float* x, float factor, std::int64_t n);

/// x[n] = cap * tanh(x / cap).
void soft_cap_row(float* x, float cap, std::int64_t n);

/// Rotates the pairs (x[j], x[j + half]) of one head by the angles of cos[half], sin[half].
void rope_head(float* x, const float* cos, const float* sin, std::int64_t half);

/// Copies row `from` of in to row `to` of out; each side is f32 or bf16, elements are converted.
void copy_row(TensorView out, std::int64_t to, ConstTensorView in, std::int64_t from);

// Row kernels of the RMS norms: one task per row, with a fixed order of summation (tile-inl.h).

/// out[n] = x / sqrt(mean(x^2) + eps) * weight; out may be x.
void rms_norm_row(float* out, const float* x, const float* weight, std::int64_t n, float eps);

/// x[n] += delta; out = rms_norm(x).
void add_rms_norm_row(float* out, float* x, const float* delta, const float* weight, std::int64_t n, float eps);

// The layout of a KV slab, and the functions that write and read it. Keys and values are panels (panel.h), so that
// attention uses the product kernel of the weights:
//   keys    [K][capacity / 32][D][32]            columns are positions
//   values  [K][ceil(D / 32)][capacity][32]      columns are the columns of a head

/// Returns the number of elements of the keys; the values have as many. The head width is rounded up to whole panels.
constexpr std::int64_t kv_elements(const KvShape& shape, std::int32_t capacity) {
  return std::int64_t{shape.kv_heads} * capacity * panels_of(shape.head_dim) * kPanel;
}

/// Return where the keys and the values of kv head `head` begin.
template <class Element>
Element* key_panels(const KvSlab& slab, const KvShape& shape, std::int64_t head) {
  return reinterpret_cast<Element*>(slab.keys) + head * slab.capacity * shape.head_dim;
}
template <class Element>
Element* value_panels(const KvSlab& slab, const KvShape& shape, std::int64_t head) {
  return reinterpret_cast<Element*>(slab.values) + head * slab.capacity * panels_of(shape.head_dim) * kPanel;
}

/// Stores the keys and values k, v [K, D], f32 or of the cache's type, of one row at `position`; k is rotated by the
/// angles of their row `row`. See KvOperations::store_kv.
void store_kv_row(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k, ConstTensorView v,
                  const RopeAngles& angles, std::int64_t row);

/// k, v [K, D] f32 = the rotated keys and the values of `position`.
void load_kv_row(float* k, float* v, const KvSlab& slab, const KvShape& shape, std::int32_t position);

/// raw_k, v [K, D] = the raw keys and the values of `position`, in the cache's type.
void save_kv_row(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t position);

/// See KvOperations::value_deviation; v [K, D] f32.
float value_deviation_row(const KvSlab& slab, const KvShape& shape, std::int32_t position, const float* v,
                          ValueMeasure measure);

// store_kv for a whole panel of 32 positions at once, which long runs of rows use. It writes the same memory as
// store_kv_row.

/// Stores rows [row, row + 32) of a call of store_kv, whose positions [position, position + 32) are one panel of the
/// slab, with the same bits as 32 calls of store_kv_row.
void store_kv_panel(const KvSlab& slab, const KvShape& shape, std::int32_t position, ConstTensorView k,
                    ConstTensorView v, const RopeAngles& angles, std::int64_t row);

}  // namespace baton::cpu
