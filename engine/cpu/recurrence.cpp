// SPDX-License-Identifier: Apache-2.0
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/recurrence.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "engine/cpu/recurrence.h"
#include "engine/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

template <class Tag, class Vec>
HWY_INLINE Vec sigmoid_of(Tag d, Vec x) {
  const auto exponent = hn::Min(hn::Neg(x), hn::Set(d, 88.0f));  // beyond 88 exp overflows
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, exponent)));
}

void multiply_relu(float* x, const float* by, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto positive = hn::Max(hn::LoadU(d, by + i), hn::Zero(d));
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), positive), d, x + i);
  });
}

void multiply(float* x, const float* by, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i)
                         HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, by + i)), d, x + i); });
}

void multiply_sigmoid(float* x, const float* by, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), sigmoid_of(d, hn::LoadU(d, by + i))), d, x + i);
  });
}

void multiply_silu(float* x, const float* by, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto gate = hn::LoadU(d, by + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Mul(gate, sigmoid_of(d, gate))), d, x + i);
  });
}

void convolve(float* out, const ConvStep& step, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) HWY_ATTR {
    auto sum = step.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, step.bias + i);
    for (std::int32_t j = 0; j < step.length; ++j)
      sum = hn::MulAdd(hn::LoadU(d, step.taps + j * step.stride + i), hn::LoadU(d, step.inputs[j] + i), sum);
    if (step.silu) sum = hn::Mul(sum, sigmoid_of(d, sum));
    hn::StoreU(sum, d, out + i);
  });
}

/// Calls fn(tag, count of vectors, i) for blocks of columns [i, i + count * lanes) until all n are done.
template <class Fn>
HWY_INLINE void for_blocks(std::int64_t n, const Fn& fn) {
  const hn::CappedTag<float, 16> full;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(full));
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) fn(full, std::integral_constant<int, 4>(), i);
  for (; i + lanes <= n; i += lanes) fn(full, std::integral_constant<int, 1>(), i);
  for (; i < n; ++i) fn(one, std::integral_constant<int, 1>(), i);
}

/// One row of the delta rule for columns [0, n) of a head: `from` and `to` [Dk, dv]; `from` may be `to`, or null.
void write_delta(float* out, const DeltaStep& step, std::int64_t n) {
  for_blocks(n, [&](auto d, auto vectors, std::int64_t at) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto kept = hn::Set(d, step.kept), written = hn::Set(d, step.written);
    decltype(hn::Zero(d)) sums[kVectors], update[kVectors];
    for (int u = 0; u < kVectors; ++u) sums[u] = hn::Zero(d);
    for (std::int64_t m = 0; m < step.key_dim; ++m) {
      const float* old = step.from == nullptr ? nullptr : step.from + m * step.stride + at;
      float* state = step.to + m * step.stride + at;
      const auto key = hn::Set(d, step.k[m]);
      for (int u = 0; u < kVectors; ++u) {
        const auto value = old == nullptr ? hn::Zero(d) : hn::Mul(hn::LoadU(d, old + u * lanes), kept);
        hn::StoreU(value, d, state + u * lanes);
        sums[u] = hn::MulAdd(key, value, sums[u]);
      }
    }
    for (int u = 0; u < kVectors; ++u) {
      update[u] = hn::Mul(written, hn::Sub(hn::LoadU(d, step.v + at + u * lanes), sums[u]));
      sums[u] = hn::Zero(d);
    }
    for (std::int64_t m = 0; m < step.key_dim; ++m) {
      float* state = step.to + m * step.stride + at;
      const auto key = hn::Set(d, step.k[m]), query = hn::Set(d, step.q[m]);
      for (int u = 0; u < kVectors; ++u) {
        const auto value = hn::MulAdd(key, update[u], hn::LoadU(d, state + u * lanes));
        hn::StoreU(value, d, state + u * lanes);
        sums[u] = hn::MulAdd(query, value, sums[u]);
      }
    }
    for (int u = 0; u < kVectors; ++u) hn::StoreU(sums[u], d, out + at + u * lanes);
  });
}

/// One row of the scan for columns [0, n) of a head: `from` and `to` [N, P]; `from` may be `to`, or null.
void write_scan(float* out, const ScanStep& step, std::int64_t n) {
  for_blocks(n, [&](auto d, auto vectors, std::int64_t at) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto kept = hn::Set(d, step.kept);
    decltype(hn::Zero(d)) x[kVectors], sums[kVectors];
    for (int u = 0; u < kVectors; ++u) {
      x[u] = hn::LoadU(d, step.x + at + u * lanes);
      sums[u] = hn::Mul(hn::Set(d, step.skip), x[u]);
    }
    for (std::int64_t m = 0; m < step.state; ++m) {
      const float* old = step.from == nullptr ? nullptr : step.from + m * step.stride + at;
      float* state = step.to + m * step.stride + at;
      const auto in = hn::Set(d, step.b[m] * step.length), read = hn::Set(d, step.c[m]);
      for (int u = 0; u < kVectors; ++u) {
        const auto before = old == nullptr ? hn::Zero(d) : hn::Mul(hn::LoadU(d, old + u * lanes), kept);
        const auto value = hn::MulAdd(in, x[u], before);
        hn::StoreU(value, d, state + u * lanes);
        sums[u] = hn::MulAdd(read, value, sums[u]);
      }
    }
    for (int u = 0; u < kVectors; ++u) hn::StoreU(sums[u], d, out + at + u * lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(multiply_relu);
HWY_EXPORT(multiply);
HWY_EXPORT(multiply_sigmoid);
HWY_EXPORT(multiply_silu);
HWY_EXPORT(convolve);
HWY_EXPORT(write_delta);
HWY_EXPORT(write_scan);

constexpr std::int64_t kConvColumns = 256;  // of a task

/// Columns of a head's state in a task: half of a wide head, so that there are tasks enough for all threads and a block
/// stays in the L1 cache.
std::int64_t columns_of_task(std::int64_t width) { return width > 64 && width % 64 == 0 ? 64 : width; }

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

/// x[n] = x * scale / sqrt(sum of x^2 + 1e-6). The chain of the sum is that of a single lane.
void make_unit(float* x, std::int64_t n, float scale) {
  float sum = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) sum = std::fma(x[i], x[i], sum);
  const float factor = scale / std::sqrt(sum + 1e-6f);
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

void multiply_relu_row(float* x, const float* by, std::int64_t n) { HWY_DYNAMIC_DISPATCH(multiply_relu)(x, by, n); }
void multiply_row(float* x, const float* by, std::int64_t n) { HWY_DYNAMIC_DISPATCH(multiply)(x, by, n); }
void multiply_sigmoid_row(float* x, const float* by, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(multiply_sigmoid)(x, by, n);
}
void multiply_silu_row(float* x, const float* by, std::int64_t n) { HWY_DYNAMIC_DISPATCH(multiply_silu)(x, by, n); }
void convolve_row(float* out, const ConvStep& step, std::int64_t n) { HWY_DYNAMIC_DISPATCH(convolve)(out, step, n); }
void delta_row(float* out, const DeltaStep& step, std::int64_t n) { HWY_DYNAMIC_DISPATCH(write_delta)(out, step, n); }
void scan_row(float* out, const ScanStep& step, std::int64_t n) { HWY_DYNAMIC_DISPATCH(write_scan)(out, step, n); }

void CpuRecurrence::find_chains(const StateRows& rows) {
  chains_.clear();
  for (std::size_t begin = 0, end = 0; begin < rows.runs.size(); begin = end) {
    end = begin + 1;
    while (end < rows.runs.size() && rows.runs[end].goes_on) ++end;
    chains_.push_back(rows.runs.subspan(begin, end - begin));
  }
}

void CpuRecurrence::convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) {
  check_convolve(out, x, weights, rows);
  find_chains(rows);
  const std::int64_t columns = x.cols, before = weights.length - 1;
  const std::int64_t pieces = (columns + kConvColumns - 1) / kConvColumns;
  const auto tasks = static_cast<std::int64_t>(chains_.size()) * pieces;
  const std::vector<float> zeros(static_cast<std::size_t>(std::min(columns, kConvColumns)), 0.0f);
  pool_.run(tasks, rows.size() * columns * weights.length, [&](std::int64_t task, int) {
    const std::int64_t first = task % pieces * kConvColumns, n = std::min(kConvColumns, columns - first);
    std::vector<const float*> inputs(static_cast<std::size_t>(weights.length));
    for (const StateRun& run : chains_[static_cast<std::size_t>(task / pieces)]) {
      /// Returns input `at` of the run, counted from its first row; those before it are in the state.
      const auto input = [&](std::int64_t at) {
        if (at >= 0) return x.f32(rows.rows[static_cast<std::size_t>(run.begin + at)]) + first;
        return run.from == nullptr ? zeros.data() : run.from + rows.offset + (before + at) * columns + first;
      };
      for (std::int64_t i = 0; i < run.end - run.begin; ++i) {
        for (std::int64_t j = 0; j <= before; ++j) inputs[static_cast<std::size_t>(j)] = input(i - before + j);
        convolve_row(
            out.f32(rows.rows[static_cast<std::size_t>(run.begin + i)]) + first,
            {inputs.data(), weights.taps.data() + first, weights.bias.empty() ? nullptr : weights.bias.data() + first,
             weights.length, weights.silu, columns},
            n);
      }
      for (std::int64_t j = 0; j < before; ++j)
        std::copy_n(input(run.end - run.begin - before + j), n, run.to + rows.offset + j * columns + first);
    }
  });
}

void CpuRecurrence::delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape,
                               const DeltaWeights& weights, const StateRows& rows) {
  check_delta_rule(out, in, shape, weights, rows);
  find_chains(rows);
  const std::int64_t dk = shape.key_dim, dv = shape.value_dim, heads = shape.value_heads;
  gates_.resize(static_cast<std::size_t>(out.rows * 2 * heads));
  const float scale = 1.0f / std::sqrt(static_cast<float>(dk));
  pool_.run(rows.size(), rows.size() * 8 * shape.key_cols(), [&](std::int64_t i, int) {
    const std::int32_t t = rows.rows[static_cast<std::size_t>(i)];
    for (std::int64_t head = 0; head < 2 * std::int64_t{shape.key_heads}; ++head)
      make_unit(in.qkv.f32(t) + head * dk, dk, head < shape.key_heads ? scale : 1.0f);
    float* gates = gates_.data() + t * 2 * heads;
    for (std::int64_t head = 0; head < heads; ++head) {
      gates[2 * head] = std::exp(weights.rate[head] * softplus(in.decay.f32(t)[head] + weights.bias[head]));
      gates[2 * head + 1] = sigmoid(in.write.f32(t)[head]);
    }
  });
  const std::int64_t block = columns_of_task(dv), pieces = dv / block * heads;
  const auto tasks = static_cast<std::int64_t>(chains_.size()) * pieces;
  pool_.run(tasks, rows.size() * shape.state_floats() * 2, [&](std::int64_t task, int) {
    const std::int64_t head = task % pieces / (dv / block), first = task % (dv / block) * block;
    const std::int64_t key_head = shape.key_head_of(head);
    const std::int64_t at = rows.offset + head * dk * dv + first;
    for (const StateRun& run : chains_[static_cast<std::size_t>(task / pieces)]) {
      const float* from = run.from == nullptr ? nullptr : run.from + at;
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = rows.rows[static_cast<std::size_t>(i)];
        const float* keys = in.qkv.f32(t) + key_head * dk;
        const float* gates = gates_.data() + t * 2 * heads + 2 * head;
        const DeltaStep step{from,
                             run.to + at,
                             keys,
                             keys + shape.key_cols(),
                             in.qkv.f32(t) + 2 * shape.key_cols() + head * dv + first,
                             gates[0],
                             gates[1],
                             dk,
                             dv};
        delta_row(out.f32(t) + head * dv + first, step, block);
        from = run.to + at;
      }
    }
  });
}

void CpuRecurrence::scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
                         const StateRows& rows) {
  check_scan(out, in, shape, weights, rows);
  find_chains(rows);
  const std::int64_t width = shape.head_dim, heads = shape.heads;
  const std::int64_t block = columns_of_task(width), pieces = width / block * heads;
  const auto tasks = static_cast<std::int64_t>(chains_.size()) * pieces;
  pool_.run(tasks, rows.size() * shape.state_floats() * 2, [&](std::int64_t task, int) {
    const std::int64_t head = task % pieces / (width / block), first = task % (width / block) * block;
    const std::int64_t group = head / (heads / shape.groups);
    const std::int64_t at = rows.offset + head * shape.state * width + first;
    for (const StateRun& run : chains_[static_cast<std::size_t>(task / pieces)]) {
      const float* from = run.from == nullptr ? nullptr : run.from + at;
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = rows.rows[static_cast<std::size_t>(i)];
        const float* xbc = in.xbc.f32(t);
        const float* b = xbc + shape.cols() + group * shape.state;
        const float length =
            std::clamp(softplus(in.step.f32(t)[head] + weights.bias[head]), weights.least, weights.most);
        const ScanStep step{from,
                            run.to + at,
                            xbc + head * width + first,
                            b,
                            b + shape.group_cols(),
                            std::exp(weights.rate[head] * length),
                            length,
                            weights.skip[head],
                            shape.state,
                            width};
        scan_row(out.f32(t) + head * width + first, step, block);
        from = run.to + at;
      }
    }
  });
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
