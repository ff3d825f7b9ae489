// SPDX-License-Identifier: Apache-2.0
// Row kernels in which an element does not depend on its neighbours.
#pragma once

#include <cstdint>

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

}  // namespace baton::cpu
