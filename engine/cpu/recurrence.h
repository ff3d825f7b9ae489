// SPDX-License-Identifier: Apache-2.0
// The operations of layers with a state (engine/backend/recurrence.h), on the CPU. Columns of a state depend on nothing
// but themselves, so that a task takes a block of columns through all rows of a sequence while the block stays in the
// L1 cache, and results do not depend on the width of vectors.
#pragma once

#include <span>
#include <vector>

#include "engine/backend/recurrence.h"
#include "engine/cpu/machine.h"
#include "engine/tensor/tensor.h"

namespace baton::cpu {

/// x[n] *= by, what is positive of it, its sigmoid or its silu; `by` may be x.
void multiply_relu_row(float* x, const float* by, std::int64_t n);
void multiply_row(float* x, const float* by, std::int64_t n);
void multiply_sigmoid_row(float* x, const float* by, std::int64_t n);
void multiply_silu_row(float* x, const float* by, std::int64_t n);

/// One row of the delta rule for some columns of a head's state. `stride`: floats between the rows of the state.
struct DeltaStep {
  const float* from;  // [Dk, dv] before the row, or null: zeros
  float* to;          // [Dk, dv] behind it; may be `from`
  const float* q;     // [Dk]
  const float* k;     // [Dk]
  const float* v;     // [dv]
  float kept;
  float written;
  std::int64_t key_dim;  // Dk
  std::int64_t stride;
};

/// One row of the scan for some columns of a head's state.
struct ScanStep {
  const float* from;  // [N, p] before the row, or null: zeros
  float* to;          // [N, p] behind it; may be `from`
  const float* x;     // [p]
  const float* b;     // [N]
  const float* c;     // [N]
  float kept;
  float length;  // of the step
  float skip;
  std::int64_t state;  // N
  std::int64_t stride;
};

/// One row of a convolution for some columns. `stride`: columns of the taps.
struct ConvStep {
  const float* const* inputs;  // [length] the oldest first, each [n]
  const float* taps;           // [length, n]
  const float* bias;           // [n] or null
  std::int32_t length;
  bool silu;
  std::int64_t stride;
};

/// out[n] of n columns, each a chain of its own.
void convolve_row(float* out, const ConvStep& step, std::int64_t n);
void delta_row(float* out, const DeltaStep& step, std::int64_t n);
void scan_row(float* out, const ScanStep& step, std::int64_t n);

class CpuRecurrence final : public Recurrence {
 public:
  explicit CpuRecurrence(ThreadPool& pool) : pool_(pool) {}

  void convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) override;
  void delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape, const DeltaWeights& weights,
                  const StateRows& rows) override;
  void scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
            const StateRows& rows) override;

 private:
  void find_chains(const StateRows& rows);

  ThreadPool& pool_;
  std::vector<std::span<const StateRun>> chains_;  // the runs of each sequence
  std::vector<float> gates_;                       // [T, heads, 2] what is kept, and what is written
};

}  // namespace baton::cpu
