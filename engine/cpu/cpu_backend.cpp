// SPDX-License-Identifier: Apache-2.0
// The CPU backend: checks the arguments of each operation, then runs its kernel over tasks.
#include <fmt/format.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/backend/backend.h"
#include "engine/base/system/process.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/machine.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/quantized/quantized.h"
#include "engine/cpu/recurrence.h"
#include "engine/cpu/rows.h"

namespace baton {
namespace {

using namespace cpu;

std::string instruction_set() {
  const auto supported = static_cast<std::uint64_t>(hwy::SupportedTargets());
  // The lowest bit is the best target.
  const std::string name = hwy::TargetName(static_cast<std::int64_t>(supported & (~supported + 1)));
  return name.starts_with("AVX3") ? "AVX-512" : name;
}

/// Calls fn(row) for all rows, several rows per task.
template <class Fn>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t work_per_row, const Fn& fn) {
  const std::int64_t tasks = std::min<std::int64_t>(rows, 4 * pool.size());
  pool.run(tasks, rows * work_per_row, [&](std::int64_t task, int) {
    for (std::int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row) fn(row);
  });
}

/// True when rows [row, row + 32) are the positions of one panel.
bool is_panel(const RowSpan& rows, std::int64_t row) {
  if (rows.position[row] % kPanel != 0 || row + kPanel > rows.size() || rows.sequence[row] == kNoSequence) return false;
  for (std::int64_t i = 1; i < kPanel; ++i) {
    if (rows.sequence[row + i] != rows.sequence[row] || rows.position[row + i] != rows.position[row] + i) return false;
  }
  return true;
}

/// The operations on KV caches.
class CpuKv final : public KvOperations {
 public:
  CpuKv(Operations& rows, ThreadPool& pool, Scratch& scratch) : KvOperations(rows), pool_(pool), scratch_(scratch) {}

  void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                ConstTensorView v, const RopeAngles& angles) override {
    check_store_kv(slabs, shape, rows, k, v, angles);
    pieces_.clear();
    for (std::int64_t row = 0; row < k.rows; row += is_panel(rows, row) ? kPanel : 1) pieces_.push_back(row);
    const std::int64_t tasks = std::min<std::int64_t>(k.rows, 4 * pool_.size());
    pool_.run(tasks, k.rows * 4 * k.cols, [&](std::int64_t task, int) {
      auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), k.rows * task / tasks);
      for (; piece != pieces_.end() && *piece < k.rows * (task + 1) / tasks; ++piece) {
        const std::int64_t row = *piece;
        if (rows.sequence[row] == kNoSequence) continue;
        const KvSlab& slab = slabs[rows.sequence[row]];
        if (is_panel(rows, row)) {
          store_kv_panel(slab, shape, rows.position[row], k, v, angles, row);
        } else {
          store_kv_row(slab, shape, rows.position[row], k.row_range(row, row + 1), v.row_range(row, row + 1), angles,
                       row);
        }
      }
    });
  }

  void insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                 std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                 std::span<const KvCorrection> corrections, const RopeAngles& angles) override {
    check_insert_kv(layers, shape, begin, k, v, corrections, angles);
    const std::int64_t rows = angles.cos.rows, cols = std::int64_t{shape.kv_heads} * shape.head_dim;
    const bool as_it_is = corrections.empty() && !k.empty();
    const bool panels = as_it_is || 2 * kPanel * cols <= kThreadFloats;
    const std::int64_t first = panels ? begin / kPanel : begin;  // a task is one panel of a layer, or one row
    const std::int64_t size = panels ? kPanel : 1;
    const std::int64_t tasks = (begin + rows + size - 1) / size - first;
    const auto count = static_cast<std::int64_t>(layers.size());
    const auto passes = static_cast<std::int64_t>(corrections.size()) + 4;
    pool_.run(tasks * count, count * rows * cols * passes, [&](std::int64_t task, int thread) {
      const auto layer = static_cast<std::size_t>(task / tasks);
      const std::int64_t piece = first + task % tasks;
      const std::int64_t from = std::max<std::int64_t>(piece * size, begin) - begin;
      const std::int64_t n = std::min((piece + 1) * size - begin, rows) - from;
      ConstTensorView keys, values;
      if (as_it_is) {
        keys = k[layer].row_range(from, from + n);
        values = v[layer].row_range(from, from + n);
      } else {
        float* both = scratch_.of_thread(thread);  // [n, 2 K D]
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t row = from + i;
          float* out = both + i * 2 * cols;
          std::fill_n(out, 2 * cols, 0.0f);
          if (!k.empty()) {
            copy_row(view_of(out, 1, cols), 0, k[layer], row);
            copy_row(view_of(out + cols, 1, cols), 0, v[layer], row);
          }
          for (const KvCorrection& one : corrections) {
            if (one.offset[layer].data != nullptr)
              add_scaled_row(out, one.offset[layer].bf16(one.row[row]), one.weight, 2 * cols);
          }
        }
        const ConstTensorView pairs = view_of(static_cast<const float*>(both), n, 2 * cols);
        keys = pairs.col_range(0, cols);
        values = pairs.col_range(cols, 2 * cols);
      }
      const RopeAngles turned{angles.cos.row_range(from, from + n), angles.sin.row_range(from, from + n)};
      const auto position = static_cast<std::int32_t>(begin + from);
      if (n == kPanel) return store_kv_panel(layers[layer], shape, position, keys, values, turned, 0);
      for (std::int32_t i = 0; i < n; ++i) {
        store_kv_row(layers[layer], shape, position + i, keys.row_range(i, i + 1), values.row_range(i, i + 1), turned,
                     i);
      }
    });
  }

  void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_save_kv(raw_k, v, slab, shape, begin);
    for_rows(pool_, raw_k.rows, 2 * raw_k.cols, [&](std::int64_t row) {
      save_kv_row(raw_k.row_range(row, row + 1), v.row_range(row, row + 1), slab, shape,
                  begin + static_cast<std::int32_t>(row));
    });
  }

  void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                       ConstTensorView v, ValueMeasure measure) override {
    check_value_deviation(out.size(), slabs, shape, rows, v);
    for_rows(pool_, v.rows, 4 * v.cols, [&](std::int64_t row) {
      if (rows.sequence[row] == kNoSequence) return;
      out[row] = value_deviation_row(slabs[rows.sequence[row]], shape, rows.position[row], v.f32(row), measure);
    });
  }

  void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_load_kv(k, v, slab, shape, begin);
    for_rows(pool_, k.rows, 4 * k.cols, [&](std::int64_t row) {
      load_kv_row(k.f32(row), v.f32(row), slab, shape, begin + static_cast<std::int32_t>(row));
    });
  }

  void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                 const RowSpan& rows, const AttentionScores& scores, std::span<AttentionSum* const> received) override {
    check_attention(out, q, slabs, shape, rows, received);
    check_sinks(scores.sinks, q, shape);
    cpu::attention({pool_, scratch_, plan_}, out, q, {slabs, shape, received}, rows, scores);
  }

 private:
  ThreadPool& pool_;
  Scratch& scratch_;
  std::vector<std::int64_t> pieces_;  // scratch of store_kv: the first row of each task
  RowAttentionPlan plan_;
};

/// The sum of function(x[c]), in chains that compilers make vectors of; the order depends on n alone.
template <class Function>
float sum_of(const float* x, std::int64_t n, Function function) {
  constexpr std::int64_t kChains = 16;
  float sums[kChains] = {};
  std::int64_t c = 0;
  for (; c + kChains <= n; c += kChains)
    for (std::int64_t i = 0; i < kChains; ++i) sums[i] += function(x[c + i]);
  for (std::int64_t i = 0; c < n; ++c, ++i) sums[i] += function(x[c]);
  for (std::int64_t half = kChains / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

float mean_of_squares(const float* x, std::int64_t n) {
  return sum_of(x, n, [](float value) { return value * value; }) / static_cast<float>(n);
}

class CpuStreams final : public StreamOperations {
 public:
  explicit CpuStreams(ThreadPool& pool) : pool_(pool) {}

  void mix(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight, std::int64_t width) override {
    check_mix(out, x, in, weight, width);
    const std::int64_t streams = out.cols / width, sources = in.cols / width;
    for_rows(pool_, out.rows, out.cols * sources, [&](std::int64_t row) {
      std::fill_n(out.f32(row), out.cols, 0.0f);
      for (std::int64_t j = 0; j < streams; ++j)
        for (std::int64_t i = 0; i < sources; ++i)
          add_weighted_row(out.f32(row) + j * width, in.f32(row) + i * width, weight.f32(row)[j * sources + i], width);
      add_row(out.f32(row), x.f32(row), out.cols);
    });
  }

  void correct(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
               std::int32_t active) override {
    check_correct(out, x, in, weight, active);
    const std::int64_t width = in.cols;
    for_rows(pool_, out.rows, 2 * out.cols, [&](std::int64_t row) {
      const float *from = x.f32(row) + active * width, *news = in.f32(row);
      for (std::int64_t j = 0; j < out.cols / width; ++j) {
        const float own = weight.f32(row)[j];
        const float* predicted = x.f32(row) + j * width;
        float* to = out.f32(row) + j * width;
        for (std::int64_t c = 0; c < width; ++c) to[c] = predicted[c] + own * (news[c] - from[c]);
      }
    });
  }

  void match_rms(TensorView x, ConstTensorView like, float least) override {
    check_match_rms(x, like, least);
    for_rows(pool_, x.rows, 2 * x.cols, [&](std::int64_t row) {
      const float own = std::max(mean_of_squares(x.f32(row), x.cols), least);
      scale_row(x.f32(row), std::sqrt(mean_of_squares(like.f32(row), x.cols) / own), x.cols);
    });
  }

  void keep_peaks(TensorView x, float deviations) override {
    check_keep_peaks(x, deviations);
    const auto n = static_cast<float>(x.cols);
    for_rows(pool_, x.rows, 4 * x.cols, [&](std::int64_t row) {
      float* own = x.f32(row);
      const float mean = sum_of(own, x.cols, [](float value) { return value; }) / n;
      const float variance = sum_of(own, x.cols, [&](float value) { return (value - mean) * (value - mean); }) / n;
      const float cut = mean + deviations * std::sqrt(variance);
      for (std::int64_t c = 0; c < x.cols; ++c) own[c] = std::max(own[c] - cut, 0.0f);
    });
  }

  void scale_columns(TensorView out, ConstTensorView x, std::span<const float> weight) override {
    check_scale_columns(out, x, weight);
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) {
      for (std::int64_t c = 0; c < x.cols; ++c) out.f32(row)[c] = x.f32(row)[c] * weight[static_cast<std::size_t>(c)];
    });
  }

 private:
  ThreadPool& pool_;
};

/// The device, products, and operations on rows of activations.
class CpuBackend final : public HostDevice {
 public:
  CpuBackend(int threads, std::string fallback)
      : fallback_(std::move(fallback)), pool_(threads), scratch_(*this, threads), dot_(dot_instructions()) {}

  KvOperations& kv() override { return kv_; }
  Recurrence& recurrence() override { return recurrence_; }
  StreamOperations& streams() override { return streams_; }
  Buffer allocate_uninitialized(std::size_t bytes) override { return {this, memory_.allocate(bytes), bytes}; }

  BackendInfo info() const override {
    const int threads = pool_.size();
    return {.name = "cpu",
            .device = fmt::format("{}, {}, {} {}", processor_name(), instruction_set(), threads,
                                  threads == 1 ? "thread" : "threads"),
            .threads = threads,
            .fallback = fallback_};
  }

  std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                      Activations activations) override {
    const bool in_pairs = activations == Activations::bf16 && multiplies_pairs(dot_);
    return pack_matrix(weights_, pool_, parts, check_parts(parts, dtype, activations), {dtype, activations, in_pairs});
  }

  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override {
    const std::int64_t rows = check_quantized_parts(parts);
    const bool packs = std::all_of(parts.begin(), parts.end(), [](const BlockRows& p) { return is_quantized(p.type); });
    if (!packs) return Backend::load_quantized_rows(parts, activations);
    return pack_quantized(weights_, pool_, parts, rows, activations);
  }

  std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const override {
    check_kv_shape(shape);
    check_capacity(capacity);
    return checked_bytes("kv slab", kv_elements(shape, capacity), 1, size_of(shape.dtype));
  }

  void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) override {
    check_shape("embed out", out, static_cast<std::int64_t>(ids.size()), table.cols);
    check_index("embed ids", ids, table.rows);
    if (const auto* blocks = dynamic_cast<const QuantizedMatrix*>(&table)) {
      return for_rows(pool_, out.rows, 4 * out.cols,
                      [&](std::int64_t row) { dequantize_row(out.f32(row), *blocks, ids[row]); });
    }
    const PackedMatrix& matrix = packed(table);
    for_rows(pool_, out.rows, out.cols, [&](std::int64_t row) { unpack_row(out.f32(row), matrix, ids[row]); });
  }

  void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) override {
    check_rms_norm(out, x, weight);
    for_rows(pool_, x.rows, x.cols,
             [&](std::int64_t row) { rms_norm_row(out.f32(row), x.f32(row), weight.data(), x.cols, eps); });
  }

  void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                    float eps) override {
    check_rms_norm(out, x, weight);
    check_shape("add_rms_norm delta", delta, x.rows, x.cols);
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) {
      add_rms_norm_row(out.f32(row), x.f32(row), delta.f32(row), weight.data(), x.cols, eps);
    });
  }

  void add(TensorView x, ConstTensorView delta) override {
    check_shape("add x", x, x.rows, x.cols);
    check_shape("add delta", delta, x.rows, x.cols);
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) { add_row(x.f32(row), delta.f32(row), x.cols); });
  }

  void head_rms_norm(TensorView x, std::span<const float> weight, float eps) override {
    check_head_norm(x, weight);
    const auto width = static_cast<std::int64_t>(weight.size());
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) {
      for (float* head = x.f32(row); head != x.f32(row) + x.cols; head += width) {
        rms_norm_row(head, head, weight.data(), width, eps);
      }
    });
  }

  void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) override {
    check_matmul(out, x, w, bias);
    if (const auto* blocks = dynamic_cast<const QuantizedMatrix*>(&w)) {
      return matmul_quantized(pool_, scratch_, dot_, out, x, *blocks, bias);
    }
    const PackedMatrix& matrix = packed(w);
    if (matrix.activations == Activations::bf16) return matmul_bf16(pool_, scratch_, out, x, matrix, bias);
    cpu::matmul(pool_, scratch_, out, x, matrix, bias);
  }

  void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) override {
    check_rope(x, head_dim, angles);
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) {
      for (std::int64_t column = 0; column < x.cols; column += head_dim) {
        rope_head(x.f32(row) + column, angles.cos.f32(row), angles.sin.f32(row), angles.cos.cols);
      }
    });
  }

  void silu_mul(TensorView out, ConstTensorView gate_up, const ClampedGate& clamped) override {
    check_gate(out, gate_up);
    for_rows(pool_, out.rows, 4 * out.cols, [&](std::int64_t row) {
      const float *gate = gate_up.f32(row), *up = gate + out.cols;
      if (clamped.limit > 0.0f) return clamped_silu_mul_row(out.f32(row), gate, up, clamped, out.cols);
      silu_mul_row(out.f32(row), gate, up, out.cols);
    });
  }

  void gelu_mul(TensorView out, ConstTensorView gate_up) override {
    check_gate(out, gate_up);
    for_rows(pool_, out.rows, 4 * out.cols, [&](std::int64_t row) {
      gelu_mul_row(out.f32(row), gate_up.f32(row), gate_up.f32(row) + out.cols, out.cols);
    });
  }

  void multiply(TensorView x, ConstTensorView by, GateFunction function) override {
    check_multiply(x, by);
    const auto row_function = function == GateFunction::none      ? multiply_row
                              : function == GateFunction::relu    ? multiply_relu_row
                              : function == GateFunction::sigmoid ? multiply_sigmoid_row
                                                                  : multiply_silu_row;
    for_rows(pool_, x.rows, 4 * x.cols, [&](std::int64_t row) { row_function(x.f32(row), by.f32(row), x.cols); });
  }

  void add_weighted_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index,
                         std::span<const float> weight) override {
    check_weighted_rows(x, in, index, weight);
    for_rows(pool_, in.rows, in.cols,
             [&](std::int64_t row) { add_weighted_row(x.f32(index[row]), in.f32(row), weight[row], in.cols); });
  }

  void scale(TensorView x, float factor) override {
    check_shape("scale x", x, x.rows, x.cols);
    for_rows(pool_, x.rows, x.cols, [&](std::int64_t row) { scale_row(x.f32(row), factor, x.cols); });
  }

  void soft_cap(TensorView x, float cap) override {
    check_soft_cap(x, cap);
    for_rows(pool_, x.rows, 4 * x.cols, [&](std::int64_t row) { soft_cap_row(x.f32(row), cap, x.cols); });
  }

  void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) override {
    check_copy_rows("gather_rows", out, x, index);
    for_rows(pool_, out.rows, out.cols, [&](std::int64_t row) { copy_row(out, row, x, index[row]); });
  }

  void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) override {
    check_copy_rows("scatter_rows", in, x, index);
    for (std::int64_t row = 0; row < in.rows; ++row) copy_row(x, index[row], in, row);
  }

 private:
  std::string fallback_;
  LastingMemory weights_;
  ThreadPool pool_;
  Scratch scratch_;
  DotInstructions dot_;
  CpuKv kv_{*this, pool_, scratch_};
  CpuRecurrence recurrence_{pool_};
  CpuStreams streams_{pool_};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, std::string fallback) {
  if (threads < 0 || threads > 4096) {
    throw std::invalid_argument(fmt::format("threads: expected 0 (one per core) or more, got {}", threads));
  }
  return std::make_unique<CpuBackend>(threads == 0 ? usable_cores() : threads, std::move(fallback));
}

}  // namespace baton
