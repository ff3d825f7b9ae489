// SPDX-License-Identifier: Apache-2.0
// The reference backend defines the operations in scalar fp32, one value at a time. Read this file first. Weights are
// [N, C] and KV slabs are [position][K][D], in plain order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/machine.h"
#include "engine/cpu/quantized/quantized.h"
#include "engine/tensor/block_types.h"
#include "engine/tensor/tensor.h"

namespace baton {
namespace {

using namespace cpu;

float load(const std::byte* data, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, data + i * 2, 2);
  return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

float rounded(float value, DType dtype) { return dtype == DType::f32 ? value : bf16_to_f32(f32_to_bf16(value)); }

void store(std::byte* data, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::f32) {
    std::memcpy(data + i * 4, &value, 4);
  } else {
    const std::uint16_t bits = f32_to_bf16(value);
    std::memcpy(data + i * 2, &bits, 2);
  }
}

struct PlainMatrix final : Matrix {
  std::vector<float> values;  // [N, C], rounded to dtype
  Activations activations = Activations::f32;
};

float bf16_operand(float value) {
  const float rounded = bf16_to_f32(f32_to_bf16(value));
  return std::abs(rounded) < kSmallestOperand ? 0.0f : rounded;
}

const PlainMatrix& plain(const Matrix& matrix) {
  const auto* ours = dynamic_cast<const PlainMatrix*>(&matrix);
  if (ours == nullptr) throw std::invalid_argument("the matrix belongs to another backend");
  return *ours;
}

void norm(float* out, const float* x, std::span<const float> weight, float eps) {
  float sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(weight.size()) + eps);
  for (std::size_t i = 0; i < weight.size(); ++i) out[i] = x[i] * scale * weight[i];
}

void rotate(float* head, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t j = 0; j < half; ++j) {
    const float a = head[j];
    const float b = head[j + half];
    head[j] = fused(-b, sin[j], a * cos[j]);
    head[j + half] = fused(a, sin[j], b * cos[j]);
  }
}

class ReferenceKv final : public KvOperations {
 public:
  using KvOperations::KvOperations;

  void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                ConstTensorView v, const RopeAngles& angles) override {
    check_store_kv(slabs, shape, rows, k, v, angles);
    const auto element = [](const ConstTensorView& view, std::int64_t t, std::int64_t c) {
      return load(view.data, view.dtype, t * view.stride + c);
    };
    for (std::int64_t t = 0; t < k.rows; ++t) {
      if (rows.sequence[t] == kNoSequence) continue;
      const KvSlab& slab = slabs[rows.sequence[t]];
      const std::int64_t first = rows.position[t] * k.cols;
      std::vector<float> key(static_cast<std::size_t>(k.cols));
      for (std::int64_t c = 0; c < k.cols; ++c) {
        key[c] = rounded(element(k, t, c), shape.dtype);
        if (slab.raw_keys != nullptr) store(slab.raw_keys, shape.dtype, first + c, key[c]);
      }
      for (std::int64_t c = 0; c < k.cols; c += shape.head_dim) {
        rotate(key.data() + c, angles.cos.f32(t), angles.sin.f32(t), angles.cos.cols);
      }
      for (std::int64_t c = 0; c < k.cols; ++c) {
        store(slab.keys, shape.dtype, first + c, key[c]);
        store(slab.values, shape.dtype, first + c, element(v, t, c));
      }
    }
  }

  void insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                 std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                 std::span<const KvCorrection> corrections, const RopeAngles& angles) override {
    check_insert_kv(layers, shape, begin, k, v, corrections, angles);
    const std::int64_t rows = angles.cos.rows, cols = std::int64_t{shape.kv_heads} * shape.head_dim;
    std::vector<float> keys(static_cast<std::size_t>(rows * cols)), values(keys.size());
    std::vector<std::int32_t> sequence(static_cast<std::size_t>(rows), 0), position, key_begin(sequence);
    for (std::int64_t t = 0; t < rows; ++t) position.push_back(begin + static_cast<std::int32_t>(t));
    const auto element = [](std::span<const ConstTensorView> all, std::size_t layer, std::int64_t t, std::int64_t c) {
      return all.empty() ? 0.0f : load(all[layer].data, all[layer].dtype, t * all[layer].stride + c);
    };
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t c = 0; c < cols; ++c) {
          float key = element(k, layer, t, c), value = element(v, layer, t, c);
          for (const KvCorrection& correction : corrections) {
            if (correction.offset[layer].data == nullptr) continue;
            const std::uint16_t* offset = correction.offset[layer].bf16(correction.row[t]);
            key = fused(correction.weight, bf16_to_f32(offset[c]), key);
            value = fused(correction.weight, bf16_to_f32(offset[cols + c]), value);
          }
          keys[t * cols + c] = key;
          values[t * cols + c] = value;
        }
      }
      store_kv(layers.subspan(layer, 1), shape, {sequence, position, key_begin}, view_of(keys.data(), rows, cols),
               view_of(values.data(), rows, cols), angles);
    }
  }

  void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_load_kv(k, v, slab, shape, begin);
    for (std::int64_t t = 0; t < k.rows; ++t) {
      for (std::int64_t c = 0; c < k.cols; ++c) {
        k.f32(t)[c] = load(slab.keys, shape.dtype, (begin + t) * k.cols + c);
        v.f32(t)[c] = load(slab.values, shape.dtype, (begin + t) * k.cols + c);
      }
    }
  }

  void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_save_kv(raw_k, v, slab, shape, begin);
    for (std::int64_t t = 0; t < raw_k.rows; ++t) {
      for (std::int64_t c = 0; c < raw_k.cols; ++c) {
        const std::int64_t from = (begin + t) * raw_k.cols + c;
        store(raw_k.data, shape.dtype, t * raw_k.stride + c, load(slab.raw_keys, shape.dtype, from));
        store(v.data, shape.dtype, t * v.stride + c, load(slab.values, shape.dtype, from));
      }
    }
  }

  void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                       ConstTensorView v, ValueMeasure measure) override {
    check_value_deviation(out.size(), slabs, shape, rows, v);
    for (std::int64_t t = 0; t < v.rows; ++t) {
      if (rows.sequence[t] == kNoSequence) continue;
      double cosines = 0, squares = 0;
      for (std::int64_t head = 0; head < v.cols; head += shape.head_dim) {
        double dot = 0, fresh = 0, cached = 0;
        for (std::int64_t c = head; c < head + shape.head_dim; ++c) {
          const double a = rounded(v.f32(t)[c], shape.dtype);
          const double b = load(slabs[rows.sequence[t]].values, shape.dtype, rows.position[t] * v.cols + c);
          dot += a * b;
          fresh += a * a;
          cached += b * b;
          squares += (a - b) * (a - b);
        }
        const double norms = std::sqrt(fresh * cached);
        cosines += norms > 0 ? dot / norms : (fresh == cached ? 1.0 : 0.0);
      }
      out[t] = static_cast<float>(measure == ValueMeasure::squared ? squares : 1.0 - cosines / shape.kv_heads);
    }
  }

  void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                 const RowSpan& rows, const AttentionScores& scores, std::span<AttentionSum* const> received) override {
    check_attention(out, q, slabs, shape, rows, received);
    check_sinks(scores.sinks, q, shape);
    const std::int64_t width = shape.head_dim;
    const std::int64_t heads = q.cols / width;
    const std::int64_t heads_per_kv = heads / shape.kv_heads;
    for (std::int64_t t = 0; t < q.rows; ++t) {
      const KvSlab& slab = slabs[rows.sequence[t]];
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto element = [&](std::int64_t key, std::int64_t d) {
          return (key * shape.kv_heads + h / heads_per_kv) * width + d;
        };
        const float* query = q.f32(t) + h * width;
        std::vector<float> weight;
        for (std::int64_t key = rows.key_begin[t]; key <= rows.position[t]; ++key) {
          float score = 0;
          for (std::int64_t d = 0; d < width; ++d) {
            score = fused(query[d], load(slab.keys, shape.dtype, element(key, d)), score);
          }
          weight.push_back(scores.scale * score);
        }
        float most = *std::max_element(weight.begin(), weight.end());
        if (!scores.sinks.empty()) most = std::max(most, scores.sinks[h]);
        float sum = scores.sinks.empty() ? 0.0f : std::exp(scores.sinks[h] - most);
        for (float& w : weight) sum += w = std::exp(w - most);
        for (std::int64_t d = 0; d < width; ++d) {
          float value = 0;
          for (std::size_t i = 0; i < weight.size(); ++i) {
            const std::int64_t key = rows.key_begin[t] + static_cast<std::int64_t>(i);
            value = fused(weight[i], load(slab.values, shape.dtype, element(key, d)), value);
          }
          out.f32(t)[h * width + d] = value / sum;
        }
        AttentionSum* sums = received.empty() ? nullptr : received[rows.sequence[t]];
        if (sums != nullptr) sums += h / heads_per_kv * slab.capacity;
        for (std::int64_t key = rows.key_begin[t]; sums != nullptr && key < rows.position[t]; ++key) {
          sums[key] += static_cast<AttentionSum>(weight[key - rows.key_begin[t]] / sum / kAttentionUnit + 0.5);
        }
      }
    }
  }
};

/// A state of `floats` at the beginning of a run: what `to` holds while the run's rows are computed.
float* begin_state(const StateRun& run, std::int64_t offset, std::int64_t floats) {
  if (run.from != nullptr) {
    std::copy_n(run.from + offset, floats, run.to + offset);
  } else {
    std::fill_n(run.to + offset, floats, 0.0f);
  }
  return run.to + offset;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

class ReferenceRecurrence final : public Recurrence {
 public:
  void convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) override {
    check_convolve(out, x, weights, rows);
    const std::int64_t before = weights.length - 1;
    for (const StateRun& run : rows.runs) {
      float* state = begin_state(run, rows.offset, before * x.cols);
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = rows.rows[i];
        for (std::int64_t c = 0; c < x.cols; ++c) {
          float sum = weights.bias.empty() ? 0.0f : weights.bias[c];
          for (std::int64_t j = 0; j <= before; ++j) {
            const float input = j < before ? state[j * x.cols + c] : x.f32(t)[c];
            sum = fused(weights.taps[j * x.cols + c], input, sum);
          }
          out.f32(t)[c] = weights.silu ? sum * sigmoid(sum) : sum;
          for (std::int64_t j = 0; j + 1 < before; ++j) state[j * x.cols + c] = state[(j + 1) * x.cols + c];
          if (before > 0) state[(before - 1) * x.cols + c] = x.f32(t)[c];
        }
      }
    }
  }

  void delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape, const DeltaWeights& weights,
                  const StateRows& rows) override {
    check_delta_rule(out, in, shape, weights, rows);
    const std::int64_t dk = shape.key_dim, dv = shape.value_dim;
    for (const StateRun& run : rows.runs) {
      float* state = begin_state(run, rows.offset, shape.state_floats());
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = rows.rows[i];
        for (std::int64_t head = 0; head < shape.value_heads; ++head) {
          const float* keys = in.qkv.f32(t) + shape.key_head_of(head) * dk;
          const std::vector<float> q = unit(keys, dk, 1.0f / std::sqrt(static_cast<float>(dk)));
          const std::vector<float> k = unit(keys + shape.key_cols(), dk, 1.0f);
          const float* v = in.qkv.f32(t) + 2 * shape.key_cols() + head * dv;
          const float kept = std::exp(weights.rate[head] * softplus(in.decay.f32(t)[head] + weights.bias[head]));
          const float written = sigmoid(in.write.f32(t)[head]);
          for (std::int64_t n = 0; n < dv; ++n) {
            float* column = state + head * dk * dv + n;
            float known = 0, result = 0;
            for (std::int64_t m = 0; m < dk; ++m) known = fused(k[m], column[m * dv] *= kept, known);
            const float update = written * (v[n] - known);
            for (std::int64_t m = 0; m < dk; ++m)
              result = fused(q[m], column[m * dv] = fused(k[m], update, column[m * dv]), result);
            out.f32(t)[head * dv + n] = result;
          }
        }
      }
    }
  }

  void scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
            const StateRows& rows) override {
    check_scan(out, in, shape, weights, rows);
    const std::int64_t width = shape.head_dim, shared = shape.heads / shape.groups;
    for (const StateRun& run : rows.runs) {
      float* state = begin_state(run, rows.offset, shape.state_floats());
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = rows.rows[i];
        for (std::int64_t head = 0; head < shape.heads; ++head) {
          const float* x = in.xbc.f32(t) + head * width;
          const float* b = in.xbc.f32(t) + shape.cols() + head / shared * shape.state;
          const float* c = b + shape.group_cols();
          const float step =
              std::clamp(softplus(in.step.f32(t)[head] + weights.bias[head]), weights.least, weights.most);
          const float kept = std::exp(weights.rate[head] * step);
          for (std::int64_t p = 0; p < width; ++p) {
            float* column = state + head * shape.state * width + p;
            float result = weights.skip[head] * x[p];
            for (std::int64_t n = 0; n < shape.state; ++n) {
              column[n * width] = fused(b[n] * step, x[p], column[n * width] * kept);
              result = fused(c[n], column[n * width], result);
            }
            out.f32(t)[head * width + p] = result;
          }
        }
      }
    }
  }

 private:
  static std::vector<float> unit(const float* x, std::int64_t n, float scale) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum = fused(x[i], x[i], sum);
    const float factor = scale / std::sqrt(sum + 1e-6f);
    std::vector<float> result(x, x + n);
    for (float& value : result) value *= factor;
    return result;
  }
};

void clamped_gate(TensorView out, ConstTensorView gate_up, const ClampedGate& how) {
  for (std::int64_t t = 0; t < out.rows; ++t) {
    for (std::int64_t f = 0; f < out.cols; ++f) {
      const float gate = std::min(gate_up.f32(t)[f], how.limit);
      const float up = std::clamp(gate_up.f32(t)[f + out.cols], -how.limit, how.limit);
      out.f32(t)[f] = (up + 1.0f) * (gate / (1.0f + std::exp(-how.slope * gate)));
    }
  }
}

class ReferenceStreams final : public StreamOperations {
 public:
  void mix(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight, std::int64_t width) override {
    check_mix(out, x, in, weight, width);
    const std::int64_t sources = in.cols / width;
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t at = 0; at < out.cols; ++at) {
        const std::int64_t j = at / width, c = at % width;
        float sum = 0.0f;
        for (std::int64_t i = 0; i < sources; ++i)
          sum = fused(weight.f32(t)[j * sources + i], in.f32(t)[i * width + c], sum);
        out.f32(t)[at] = x.f32(t)[at] + sum;
      }
    }
  }

  void correct(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
               std::int32_t active) override {
    check_correct(out, x, in, weight, active);
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t at = 0; at < out.cols; ++at) {
        const std::int64_t j = at / in.cols, c = at % in.cols;
        const float change = in.f32(t)[c] - x.f32(t)[active * in.cols + c];
        out.f32(t)[at] = x.f32(t)[at] + weight.f32(t)[j] * change;
      }
    }
  }

  void match_rms(TensorView x, ConstTensorView like, float least) override {
    check_match_rms(x, like, least);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const float factor = std::sqrt(mean_square(like, t) / std::max(mean_square(x, t), least));
      for (std::int64_t c = 0; c < x.cols; ++c) x.f32(t)[c] *= factor;
    }
  }

  void keep_peaks(TensorView x, float deviations) override {
    check_keep_peaks(x, deviations);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      float mean = 0.0f, variance = 0.0f;
      for (std::int64_t c = 0; c < x.cols; ++c) mean += x.f32(t)[c] / static_cast<float>(x.cols);
      for (std::int64_t c = 0; c < x.cols; ++c)
        variance += (x.f32(t)[c] - mean) * (x.f32(t)[c] - mean) / static_cast<float>(x.cols);
      const float cut = mean + deviations * std::sqrt(variance);
      for (std::int64_t c = 0; c < x.cols; ++c) x.f32(t)[c] = std::max(x.f32(t)[c] - cut, 0.0f);
    }
  }

  void scale_columns(TensorView out, ConstTensorView x, std::span<const float> weight) override {
    check_scale_columns(out, x, weight);
    for (std::int64_t t = 0; t < x.rows; ++t)
      for (std::int64_t c = 0; c < x.cols; ++c) out.f32(t)[c] = x.f32(t)[c] * weight[static_cast<std::size_t>(c)];
  }

 private:
  static float mean_square(ConstTensorView x, std::int64_t row) {
    float sum = 0.0f;
    for (std::int64_t c = 0; c < x.cols; ++c) sum += x.f32(row)[c] * x.f32(row)[c];
    return sum / static_cast<float>(x.cols);
  }
};

class ReferenceBackend final : public HostDevice {
 public:
  KvOperations& kv() override { return kv_; }
  Recurrence& recurrence() override { return recurrence_; }
  StreamOperations& streams() override { return streams_; }

  BackendInfo info() const override { return {"reference", "scalar fp32", 1}; }

  std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                      Activations activations) override {
    auto matrix = std::make_unique<PlainMatrix>();
    matrix->rows = check_parts(parts, dtype, activations);
    matrix->activations = activations;
    matrix->cols = parts[0].cols;
    matrix->dtype = dtype;
    matrix->bytes = checked_bytes("load_matrix", matrix->rows, matrix->cols, sizeof(float));
    matrix->values.reserve(matrix->bytes / sizeof(float));
    for (const ConstTensorView& part : parts) {
      for (std::int64_t n = 0; n < part.rows; ++n) {
        for (std::int64_t c = 0; c < part.cols; ++c) {
          const float value = load(part.data, part.dtype, n * part.stride + c);
          matrix->values.push_back(activations == Activations::bf16 ? bf16_operand(value) : rounded(value, dtype));
        }
      }
    }
    return matrix;
  }

  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override {
    check_quantized_parts(parts);
    return std::make_unique<ReferenceBlocks>(parts, activations);
  }

  std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const override {
    check_kv_shape(shape);
    check_capacity(capacity);
    return checked_bytes("kv slab", capacity, std::int64_t{shape.kv_heads} * shape.head_dim, size_of(shape.dtype));
  }

  void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) override {
    check_shape("embed out", out, static_cast<std::int64_t>(ids.size()), table.cols);
    check_index("embed ids", ids, table.rows);
    if (const auto* blocks = dynamic_cast<const ReferenceBlocks*>(&table)) {
      for (std::int64_t t = 0; t < out.rows; ++t) blocks->dequantize_row(out.f32(t), ids[t]);
      return;
    }
    const std::vector<float>& values = plain(table).values;
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t c = 0; c < out.cols; ++c) out.f32(t)[c] = values[ids[t] * table.cols + c];
    }
  }

  void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) override {
    check_rms_norm(out, x, weight);
    for (std::int64_t t = 0; t < x.rows; ++t) norm(out.f32(t), x.f32(t), weight, eps);
  }

  void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                    float eps) override {
    check_rms_norm(out, x, weight);
    add(x, delta);
    rms_norm(out, x, weight, eps);
  }

  void add(TensorView x, ConstTensorView delta) override {
    check_shape("add x", x, x.rows, x.cols);
    check_shape("add delta", delta, x.rows, x.cols);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; ++c) x.f32(t)[c] += delta.f32(t)[c];
    }
  }

  void head_rms_norm(TensorView x, std::span<const float> weight, float eps) override {
    check_head_norm(x, weight);
    const auto width = static_cast<std::int64_t>(weight.size());
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; c += width) norm(x.f32(t) + c, x.f32(t) + c, weight, eps);
    }
  }

  void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) override {
    check_matmul(out, x, w, bias);
    if (const auto* blocks = dynamic_cast<const ReferenceBlocks*>(&w)) {
      return reference_quantized_matmul(out, x, *blocks, bias);
    }
    const std::vector<float>& weights = plain(w).values;
    const bool rounds = plain(w).activations == Activations::bf16;
    for (std::int64_t t = 0; t < x.rows; ++t) {
      std::vector<float> inputs(x.f32(t), x.f32(t) + x.cols);
      if (rounds) std::transform(inputs.begin(), inputs.end(), inputs.begin(), bf16_operand);
      for (std::int64_t n = 0; n < w.rows; ++n) {
        float sum = bias.empty() ? 0.0f : bias[n];
        if (rounds && std::abs(sum) < kSmallestOperand) sum = 0.0f;
        for (std::int64_t c = 0; c < w.cols; ++c) sum = fused(inputs[c], weights[n * w.cols + c], sum);
        out.f32(t)[n] = sum;
      }
    }
  }

  void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) override {
    check_rope(x, head_dim, angles);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; c += head_dim) {
        rotate(x.f32(t) + c, angles.cos.f32(t), angles.sin.f32(t), angles.cos.cols);
      }
    }
  }

  void silu_mul(TensorView out, ConstTensorView gate_up, const ClampedGate& clamped) override {
    check_gate(out, gate_up);
    if (clamped.limit > 0.0f) return clamped_gate(out, gate_up, clamped);
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t f = 0; f < out.cols; ++f) {
        const float gate = gate_up.f32(t)[f];
        out.f32(t)[f] = gate / (1.0f + std::exp(-gate)) * gate_up.f32(t)[f + out.cols];
      }
    }
  }

  void gelu_mul(TensorView out, ConstTensorView gate_up) override {
    check_gate(out, gate_up);
    const float root = std::sqrt(2.0f / std::numbers::pi_v<float>);
    for (std::int64_t t = 0; t < out.rows; ++t) {
      for (std::int64_t f = 0; f < out.cols; ++f) {
        const float gate = gate_up.f32(t)[f];
        const float gelu = 0.5f * gate * (1.0f + std::tanh(root * (gate + 0.044715f * gate * gate * gate)));
        out.f32(t)[f] = gelu * gate_up.f32(t)[f + out.cols];
      }
    }
  }

  void multiply(TensorView x, ConstTensorView by, GateFunction function) override {
    check_multiply(x, by);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const float gate = by.f32(t)[c];
        x.f32(t)[c] *= function == GateFunction::none      ? gate
                       : function == GateFunction::relu    ? std::max(gate, 0.0f)
                       : function == GateFunction::sigmoid ? sigmoid(gate)
                                                           : gate * sigmoid(gate);
      }
    }
  }

  void add_weighted_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index,
                         std::span<const float> weight) override {
    check_weighted_rows(x, in, index, weight);
    for (std::int64_t t = 0; t < in.rows; ++t) {
      float* row = x.f32(index[t]);
      for (std::int64_t c = 0; c < in.cols; ++c) row[c] = fused(weight[t], in.f32(t)[c], row[c]);
    }
  }

  void scale(TensorView x, float factor) override {
    check_shape("scale x", x, x.rows, x.cols);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; ++c) x.f32(t)[c] *= factor;
    }
  }

  void soft_cap(TensorView x, float cap) override {
    check_soft_cap(x, cap);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      for (std::int64_t c = 0; c < x.cols; ++c) x.f32(t)[c] = cap * std::tanh(x.f32(t)[c] / cap);
    }
  }

  void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) override {
    check_copy_rows("gather_rows", out, x, index);
    for (std::int64_t t = 0; t < out.rows; ++t) copy(out, t, x, index[t]);
  }

  void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) override {
    check_copy_rows("scatter_rows", in, x, index);
    for (std::int64_t t = 0; t < in.rows; ++t) copy(x, index[t], in, t);
  }

 private:
  static void copy(TensorView out, std::int64_t to, ConstTensorView in, std::int64_t from) {
    for (std::int64_t c = 0; c < in.cols; ++c) {
      store(out.data, out.dtype, to * out.stride + c, load(in.data, in.dtype, from * in.stride + c));
    }
  }

  ReferenceKv kv_{*this};
  ReferenceRecurrence recurrence_;
  ReferenceStreams streams_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace baton

namespace baton::cpu {
namespace {

constexpr std::int64_t kBlock = 32;  // inputs that share the scale of an activation

template <class Block>
Block block_at(const std::byte* row, std::int64_t index) {
  Block block;
  std::memcpy(&block, row + index * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

int half(const std::uint8_t* q, std::int64_t i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
int fifth_bit(const std::uint8_t* high, std::int64_t i) { return (high[i / 8] >> (i % 8) & 1) << 4; }
int quarter(const std::uint8_t* q, std::int64_t i) { return q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3; }

template <class Block>
Quant grouped(const Block& block, int quant, std::int64_t group) {
  const GroupScales groups = group_scales(block.scales);
  return {quant, f16_to_f32(block.d) * static_cast<float>(groups.scale[group]),
          -(f16_to_f32(block.dmin) * static_cast<float>(groups.minimum[group])), 32, true};
}

/// A row of activations in 8 bits.
struct Activation {
  std::vector<int> quants;
  std::vector<float> scales;  // one for each block
};

Activation quantized(const float* x, std::int64_t cols) {
  Activation out;
  for (std::int64_t c = 0; c < cols; c += kBlock) {
    float largest = 0;
    bool finite = true;
    for (std::int64_t i = c; i < c + kBlock; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::abs(x[i]));
    }
    const bool zeros = !finite || largest < 0x1p-100f;
    const float scale = largest / 127.0f, inverse = 127.0f / largest;
    out.scales.push_back(!finite ? std::numeric_limits<float>::quiet_NaN() : zeros ? 0.0f : scale);
    for (std::int64_t i = c; i < c + kBlock; ++i) {
      out.quants.push_back(zeros ? 0 : static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
  }
  return out;
}

float multiply(const Activation& x, BlockType type, const std::byte* row, float bias) {
  float acc = bias;
  const auto cols = static_cast<std::int64_t>(x.quants.size());
  for (std::int64_t c = 0; c < cols; c += kBlock) {
    const float x_scale = x.scales[c / kBlock];
    const int group = quant_of(type, row, c).group;
    for (std::int64_t g = c; g < c + kBlock; g += group) {
      int sum = 0;
      for (std::int64_t i = g; i < g + group; ++i) sum += quant_of(type, row, i).quant * x.quants[i];
      acc = fused(static_cast<float>(sum) * x_scale, quant_of(type, row, g).scale, acc);
    }
    for (std::int64_t g = c; g < c + kBlock; g += group) {
      const Quant first = quant_of(type, row, g);
      const int sum = std::reduce(x.quants.begin() + g, x.quants.begin() + g + group);
      if (first.has_minimum) acc = fused(first.minimum, x_scale * static_cast<float>(sum), acc);
    }
  }
  return acc;
}

}  // namespace

Quant quant_of(BlockType type, const std::byte* row, std::int64_t i) {
  const std::int64_t values = format_of(type).values, index = i / values;
  i %= values;
  switch (type) {
    case BlockType::q8_0: {
      const auto block = block_at<BlockQ8_0>(row, index);
      return {block.q[i], f16_to_f32(block.d)};
    }
    case BlockType::q4_0: {
      const auto block = block_at<BlockQ4_0>(row, index);
      return {half(block.q, i) - 8, f16_to_f32(block.d)};
    }
    case BlockType::q4_1: {
      const auto block = block_at<BlockQ4_1>(row, index);
      return {half(block.q, i), f16_to_f32(block.d), f16_to_f32(block.m), 32, true};
    }
    case BlockType::q5_0: {
      const auto block = block_at<BlockQ5_0>(row, index);
      return {(half(block.q, i) | fifth_bit(block.high, i)) - 16, f16_to_f32(block.d)};
    }
    case BlockType::q5_1: {
      const auto block = block_at<BlockQ5_1>(row, index);
      return {half(block.q, i) | fifth_bit(block.high, i), f16_to_f32(block.d), f16_to_f32(block.m), 32, true};
    }
    case BlockType::q4_k: {
      const auto block = block_at<BlockQ4_K>(row, index);
      return grouped(block, block.q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15, i / 32);
    }
    case BlockType::q5_k: {
      const auto block = block_at<BlockQ5_K>(row, index);
      const int low = block.q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
      return grouped(block, low | (block.high[i % 32] >> (i / 32) & 1) << 4, i / 32);
    }
    case BlockType::q6_k: {
      const auto block = block_at<BlockQ6_K>(row, index);
      const std::int64_t half_block = i / 128, at = i % 128;
      const int low = block.low[half_block * 64 + at % 64] >> (at / 64 * 4) & 15;
      const int high = block.high[half_block * 32 + at % 32] >> (at / 32 * 2) & 3;
      const std::int64_t group = i / 16;
      return {(low | high << 4) - 32, f16_to_f32(block.d) * static_cast<float>(block.scales[group]), 0, 16};
    }
    case BlockType::q2_k: {
      const auto block = block_at<BlockQ2_K>(row, index);
      const std::uint8_t both = block.scales[i / 16];
      return {quarter(block.q, i), f16_to_f32(block.d) * static_cast<float>(both & 15),
              -(f16_to_f32(block.dmin) * static_cast<float>(both >> 4)), 16, true};
    }
    case BlockType::q3_k: {
      const auto block = block_at<BlockQ3_K>(row, index);
      const int high = block.high[i % 32] >> (i / 32) & 1;
      const float scale = group_scales(block)[static_cast<std::size_t>(i / 16)];
      return {(quarter(block.q, i) | high << 2) - 4, f16_to_f32(block.d) * scale, 0, 16};
    }
    case BlockType::iq4_nl: {
      const auto block = block_at<BlockIQ4_NL>(row, index);
      return {kNonlinear4[static_cast<std::size_t>(half(block.q, i))], f16_to_f32(block.d)};
    }
    case BlockType::iq4_xs: {
      const auto block = block_at<BlockIQ4_XS>(row, index);
      const float scale = group_scales(block)[static_cast<std::size_t>(i / 32)];
      return {kNonlinear4[static_cast<std::size_t>(half(block.q + i / 32 * 16, i % 32))], f16_to_f32(block.d) * scale};
    }
    case BlockType::mxfp4: {
      const auto block = block_at<BlockMXFP4>(row, index);
      return {kE2M1Doubled[static_cast<std::size_t>(half(block.q, i))], half_exponent(block.e)};
    }
    default:
      throw std::logic_error("a block type without quants");
  }
}

ReferenceBlocks::ReferenceBlocks(std::span<const BlockRows> parts, Activations activations)
    : activations_(activations) {
  cols = parts[0].cols;
  dtype = DType::f32;
  for (const BlockRows& part : parts) {
    std::vector<std::byte>& blocks =
        data_.emplace_back(static_cast<std::size_t>(part.rows * row_bytes(part.type, cols)));
    part.read(blocks, 0);
    rows += part.rows;
    bytes += blocks.size();
    parts_.push_back({blocks, part.type, part.rows, cols});
  }
}

ReferenceBlocks::Row ReferenceBlocks::row(std::int64_t i) const {
  std::size_t part = 0;
  for (; i >= parts_[part].rows; ++part) i -= parts_[part].rows;
  return {parts_[part].type, parts_[part].row(i)};
}

void ReferenceBlocks::dequantize_row(float* out, std::int64_t i) const {
  const Row from = row(i);
  dequantize({out, static_cast<std::size_t>(cols)}, {from.data, static_cast<std::size_t>(row_bytes(from.type, cols))},
             from.type);
}

void reference_quantized_matmul(TensorView out, ConstTensorView x, const ReferenceBlocks& w,
                                std::span<const float> bias) {
  for (std::int64_t n = 0; n < w.rows; ++n) {
    const ReferenceBlocks::Row from = w.row(n);
    const float start = bias.empty() ? 0.0f : bias[n];
    std::vector<float> values(static_cast<std::size_t>(w.cols));
    w.dequantize_row(values.data(), n);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      if (w.activations() == Activations::int8 && is_quantized(from.type)) {
        out.f32(t)[n] = multiply(quantized(x.f32(t), x.cols), from.type, from.data, start);
      } else {
        float sum = start;
        for (std::int64_t c = 0; c < w.cols; ++c) sum = fused(x.f32(t)[c], values[c], sum);
        out.f32(t)[n] = sum;
      }
    }
  }
}

}  // namespace baton::cpu
