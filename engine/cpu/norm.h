// SPDX-License-Identifier: Apache-2.0
// Row kernels of the RMS norms: one task per row, with a fixed order of summation (lanes-inl.h).
#pragma once

#include <cstdint>

namespace baton::cpu {

/// out[n] = x / sqrt(mean(x^2) + eps) * weight; out may be x.
void rms_norm_row(float* out, const float* x, const float* weight, std::int64_t n, float eps);

/// x[n] += delta; out = rms_norm(x).
void add_rms_norm_row(float* out, float* x, const float* delta, const float* weight, std::int64_t n, float eps);

}  // namespace baton::cpu
