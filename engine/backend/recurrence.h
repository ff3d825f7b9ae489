// SPDX-License-Identifier: Apache-2.0
// Recurrence: the operations of layers that keep a state of fixed size instead of keys and values: a short causal
// convolution, the gated delta rule (arXiv 2412.06464) and the selective scan of Mamba2 (arXiv 2405.21060).
//
// A sequence's rows run one after another: the result of a row is a fixed chain of operations on the row and the state
// before it. So results and states have the same bits however the rows of a sequence are split into calls.
//
// Threads and errors: as Operations (engine/backend/backend.h).
#pragma once

#include <cstdint>
#include <span>

#include "engine/tensor/tensor.h"

namespace baton {

/// Rows [begin, end) of StateRows::rows: tokens of one sequence that follow one another.
struct StateRun {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  const float* from = nullptr;  // the sequence's state before the first row; null: zeros
  float* to = nullptr;          // where the state behind the last row is written; not `from`
  bool goes_on = false;         // the run before it is of the same sequence, and `from` is its `to`
};

/// The rows of a call, and the states that they begin with and leave. `from` and `to` are the backend's memory.
struct StateRows {
  std::span<const std::int32_t> rows;  // [n] rows of the views, grouped by run
  std::span<const StateRun> runs;
  std::int64_t offset = 0;  // of the layer's part in a state, in floats

  std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }
};

/// A causal convolution of each of C columns over the last K rows.
struct ConvWeights {
  std::span<const float> taps;  // [K, C], those of the oldest row first
  std::span<const float> bias;  // [C] or empty
  std::int32_t length = 0;      // K
  bool silu = false;            // of the result
};

/// What a convolution keeps: its last K - 1 inputs [K - 1, C], the oldest first.
inline std::int64_t conv_state_floats(std::int64_t columns, std::int32_t length) { return columns * (length - 1); }

/// Value head h reads key head h / (value_heads / key_heads), or h % key_heads if the heads are tiled.
struct DeltaShape {
  std::int32_t key_heads = 0;
  std::int32_t value_heads = 0;
  std::int32_t key_dim = 0;    // Dk of a head
  std::int32_t value_dim = 0;  // Dv of a head
  bool tiled = false;

  std::int64_t key_head_of(std::int64_t head) const {
    return tiled ? head % key_heads : head / (value_heads / key_heads);
  }
  std::int64_t key_cols() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t value_cols() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t state_floats() const { return value_cols() * key_dim; }  // [value_heads, Dk, Dv]
};

/// What the projections of a gated delta net give to T rows.
struct DeltaRows {
  TensorView qkv;         // [T, 2 key_cols + value_cols]: queries, keys and values; unspecified afterwards
  ConstTensorView write;  // [T, value_heads]; its sigmoid is how much of a value is written
  ConstTensorView decay;  // [T, value_heads]; see DeltaWeights
};
/// A head keeps exp(rate * softplus(decay + bias)) of its state in each row.
struct DeltaWeights {
  std::span<const float> rate;  // [value_heads], negative
  std::span<const float> bias;  // [value_heads]
};

/// Head h reads group h / (heads / groups) of B and C.
struct ScanShape {
  std::int32_t heads = 0;
  std::int32_t head_dim = 0;  // P
  std::int32_t groups = 0;
  std::int32_t state = 0;  // N

  std::int64_t cols() const { return std::int64_t{heads} * head_dim; }
  std::int64_t group_cols() const { return std::int64_t{groups} * state; }
  std::int64_t state_floats() const { return cols() * state; }  // [heads, N, P]
};

/// What the projections of a Mamba2 layer give to T rows.
struct ScanRows {
  ConstTensorView xbc;   // [T, cols + 2 group_cols]: x, B and C
  ConstTensorView step;  // [T, heads]; see ScanWeights
};
/// The length of a head's step is d = clamp(softplus(step + bias), least, most); it keeps exp(rate * d) of its state.
struct ScanWeights {
  std::span<const float> rate;  // [heads], negative
  std::span<const float> bias;  // [heads]
  std::span<const float> skip;  // [heads], D: how much of x is added to the result
  float least = 0.0f;
  float most = 0.0f;
};

class Recurrence {
 public:
  virtual ~Recurrence() = default;

  /// out[T, C] = bias + the sum over j of taps[j] * the input K - 1 - j rows before, in ascending order of j; then its
  /// silu. `out` is not `x`. Inputs before a sequence's first row are zeros.
  virtual void convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) = 0;

  /// out[T, value_cols]: for each row and value head, with keys and queries of length 1 (x / sqrt(sum of x^2 + 1e-6))
  /// and queries divided by sqrt(Dk):
  ///   S *= exp(rate * softplus(decay + bias)); u = sigmoid(write) * (v - S^T k); S += k u^T; out = S^T q.
  virtual void delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape, const DeltaWeights& weights,
                          const StateRows& rows) = 0;

  /// out[T, cols]: for each row and head S = exp(rate * d) * S + B (d x)^T; out = S^T C + skip * x.
  virtual void scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
                    const StateRows& rows) = 0;
};

/// Check the arguments of a call; throw std::invalid_argument with the expected and the actual value.
void check_convolve(const ConstTensorView& out, const ConstTensorView& x, const ConvWeights& weights,
                    const StateRows& rows);
void check_delta_rule(const ConstTensorView& out, const DeltaRows& in, const DeltaShape& shape,
                      const DeltaWeights& weights, const StateRows& rows);
void check_scan(const ConstTensorView& out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
                const StateRows& rows);

}  // namespace baton
