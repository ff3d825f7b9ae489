// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "engine/backend/host_operations.h"
#include "engine/base/clock.h"
#include "engine/base/units/numbers.h"

namespace baton {

std::unique_ptr<Matrix> Backend::random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                               float deviation, Activations activations) {
  const std::size_t count = checked_bytes("random_matrix", rows, cols, 1);
  const auto values = std::make_unique_for_overwrite<std::uint16_t[]>(count);
  const auto fill = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values[i] = f32_to_bf16(random_weight(seed, i, deviation));
  };
  const auto threads = static_cast<std::size_t>(std::max(1, info().threads));
  std::vector<std::jthread> others;
  std::size_t started = 1;
  try {
    for (; started < threads; ++started)
      others.emplace_back(fill, count * started / threads, count * (started + 1) / threads);
  } catch (const std::system_error&) {  // no more threads: the caller does what is left
  }
  fill(0, count / threads);
  fill(count * started / threads, count);
  others.clear();
  const ConstTensorView part =
      BasicView<const std::byte>{reinterpret_cast<const std::byte*>(values.get()), DType::bf16, rows, cols, cols};
  return load_matrix({&part, 1}, dtype, activations);
}

std::unique_ptr<Matrix> Backend::load_quantized_matrix(std::span<const BlockView> parts, Activations activations) {
  std::vector<BlockRows> rows;
  for (const BlockView& part : parts) {
    rows.push_back({part.type, part.rows, part.cols, [&part](std::span<std::byte> out, std::int64_t first) {
                      std::memcpy(out.data(), part.row(first), out.size());
                    }});
  }
  check_quantized_parts(rows);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t bytes =
        checked_bytes("load_quantized_matrix", parts[i].rows, row_bytes(parts[i].type, parts[i].cols), 1);
    if (parts[i].data.size() != bytes || parts[i].data.data() == nullptr) {
      throw std::invalid_argument(
          fmt::format("load_quantized_matrix: part {}: expected {} bytes, got {}", i, bytes, parts[i].data.size()));
    }
  }
  return load_quantized_rows(rows, activations);
}

std::unique_ptr<Matrix> Backend::load_quantized_rows(std::span<const BlockRows> parts, Activations activations) {
  const std::int64_t rows = check_quantized_parts(parts), cols = parts[0].cols;
  const DType dtype = activations == Activations::int8 ? DType::bf16 : DType::f32;
  std::vector<std::byte> values(checked_bytes("load_quantized_rows", rows, cols, size_of(dtype)));
  const TensorView whole{values.data(), dtype, rows, cols, cols};
  std::vector<float> row(static_cast<std::size_t>(cols));
  std::vector<std::byte> blocks;
  std::int64_t n = 0;
  for (const BlockRows& part : parts) {
    const std::int64_t stride = row_bytes(part.type, cols), step = std::max<std::int64_t>(1, kPieceBytes / stride);
    for (std::int64_t i = 0; i < part.rows; ++i, ++n) {
      if (i % step == 0) {
        blocks.resize(static_cast<std::size_t>(std::min(step, part.rows - i) * stride));
        part.read(blocks, i);
      }
      dequantize(row, std::span(blocks).subspan(static_cast<std::size_t>(i % step * stride)), part.type);
      if (dtype == DType::f32) {
        std::copy(row.begin(), row.end(), whole.f32(n));
      } else {
        std::transform(row.begin(), row.end(), whole.bf16(n), f32_to_bf16);
      }
    }
  }
  const ConstTensorView view = whole;
  return load_matrix({&view, 1}, dtype);
}

std::vector<Alignment> Backend::align(ConstTensorView sketches, std::span<const TextPair> pairs) {
  check_align(sketches, pairs);
  std::vector<Alignment> alignments(pairs.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    std::vector<float> other;
    for (std::size_t i = next++; i < pairs.size(); i = next++) {
      other.clear();
      for (const std::int32_t row : pairs[i].other)
        other.insert(other.end(), sketches.f32(row), sketches.f32(row) + editing::kSketchWidth);
      Aligner aligner(other);
      for (const std::int32_t row : pairs[i].text) aligner.push(sketches.f32(row));
      alignments[i] = aligner.result();
    }
  };
  std::vector<std::future<void>> others;
  const std::size_t threads = std::min(pairs.size(), static_cast<std::size_t>(std::max(1, info().threads)));
  try {
    for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  } catch (const std::system_error&) {  // thread limit reached: the threads that exist do all the work
  }
  work();
  for (std::future<void>& one : others) one.get();
  return alignments;
}

std::string BackendInfo::description() const {
  return name + ": " + device + (fallback.empty() ? "" : " (" + fallback + ")");
}

void Device::run_step(const std::function<void()>& work, bool /*repeats*/) { work(); }

void Device::clear(std::byte* out, std::size_t bytes) { std::memset(out, 0, bytes); }

TransferId Device::upload(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes) {
  std::memcpy(device.data() + begin, host.data() + begin, bytes);
  return 0;
}

TransferId Device::download(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes) {
  std::memcpy(host.data() + begin, device.data() + begin, bytes);
  return 0;
}

void Device::follow(TransferId /*transfer*/) {}

void Device::mark() { marks_.push_back(std::chrono::steady_clock::now()); }

std::vector<double> Device::take_marks() {
  std::vector<double> between;
  for (std::size_t i = 1; i < marks_.size(); ++i) between.push_back(milliseconds(marks_[i] - marks_[i - 1]));
  marks_.clear();
  return between;
}

void KvOperations::norm_store_rope(const QkvRows& qkv, const HeadNorms& norms, std::span<const KvSlab> slabs,
                                   const KvShape& shape, const RowSpan& rows, const RopeAngles& angles) {
  if (!norms.q.empty()) rows_.head_rms_norm(qkv.q, norms.q, norms.eps);
  if (!norms.k.empty()) rows_.head_rms_norm(qkv.k, norms.k, norms.eps);
  store_kv(slabs, shape, rows, qkv.k, qkv.v, angles);
  rows_.rope(qkv.q, shape.head_dim, angles);
}

void Operations::choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) {
  check_shape("choose logits", logits, static_cast<std::int64_t>(how.size()), logits.cols);
  for (std::size_t i = 0; i < how.size(); ++i) {
    const auto* row = reinterpret_cast<const float*>(logits.data) + static_cast<std::int64_t>(i) * logits.stride;
    out[i] = chooser_.choose({row, static_cast<std::size_t>(logits.cols)}, how[i]);
  }
}

namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

void check_matrix(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols) {
  if (view.rows != rows || view.cols != cols) {
    refuse("{}: expected [{}, {}], got [{}, {}]", name, rows, cols, view.rows, view.cols);
  }
  if (rows < 0 || cols < 0) refuse("{}: negative shape [{}, {}]", name, rows, cols);
  if (rows > 1 && view.stride < cols) refuse("{}: stride {} is less than {} columns", name, view.stride, cols);
  if (rows > 0 && cols > 0 && view.data == nullptr)
    refuse("{}: expected data for [{}, {}], got a null pointer", name, rows, cols);
}

void check_dtype(std::string_view name, const ConstTensorView& view, DType expected) {
  if (view.dtype != expected) refuse("{}: expected {}, got {}", name, name_of(expected), name_of(view.dtype));
}

}  // namespace

void check_shape(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols) {
  check_dtype(name, view, DType::f32);
  check_matrix(name, view, rows, cols);
}

void check_operand(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols,
                   DType operand) {
  if (view.dtype != operand) check_dtype(name, view, DType::f32);
  check_matrix(name, view, rows, cols);
}

void check_length(std::string_view name, std::size_t length, std::int64_t expected) {
  if (static_cast<std::int64_t>(length) != expected) refuse("{}: expected {} values, got {}", name, expected, length);
}

void check_index(std::string_view name, std::span<const std::int32_t> index, std::int64_t end) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= end) refuse("{}: [{}] = {} is outside [0, {})", name, i, index[i], end);
  }
}

std::size_t checked_bytes(std::string_view name, std::int64_t rows, std::int64_t cols, std::size_t element_bytes) {
  std::int64_t bytes = 0;
  if (rows < 0 || cols < 0 || multiply_overflows(rows, cols, bytes) ||
      multiply_overflows(bytes, static_cast<std::int64_t>(element_bytes), bytes)) {
    refuse("{}: size [{}, {}] is invalid: expected 0 to {} bytes", name, rows, cols, INT64_MAX);
  }
  return static_cast<std::size_t>(bytes);
}

std::int64_t check_parts(std::span<const ConstTensorView> parts, DType dtype, Activations activations) {
  if (parts.empty()) refuse("load_matrix: expected at least 1 part, got no parts");
  if (dtype == DType::f16) refuse("load_matrix: expected a target of bf16 or f32, got f16");
  if (activations == Activations::int8) refuse("load_matrix: expected activations in bf16 or f32, got int8");
  if (activations == Activations::bf16 && dtype != DType::bf16)
    refuse("load_matrix: activations in bf16 need weights in bf16, got f32");
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ConstTensorView& part = parts[i];
    if (part.rows <= 0 || part.cols <= 0)
      refuse("load_matrix: part {}: expected at least one row and column, got [{}, {}]", i, part.rows, part.cols);
    if (part.cols != parts[0].cols) {
      refuse("load_matrix: part {}: expected {} columns, got {}", i, parts[0].cols, part.cols);
    }
    if (part.stride < part.cols)
      refuse("load_matrix: part {}: stride {} is less than {} columns", i, part.stride, part.cols);
    if (part.data == nullptr) refuse("load_matrix: part {} has no data", i);
    if (add_overflows(rows, part.rows, rows)) refuse("load_matrix: the number of rows overflows");
  }
  return rows;
}

std::int64_t check_quantized_parts(std::span<const BlockRows> parts) {
  if (parts.empty()) refuse("quantised weight: no parts");
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const BlockRows& part = parts[i];
    const BlockFormat& format = format_of(part.type);
    if (part.rows <= 0 || part.cols <= 0) refuse("quantised weight: part {} is [{}, {}]", i, part.rows, part.cols);
    if (part.cols != parts[0].cols) {
      refuse("quantised weight: part {}: expected {} columns, got {}", i, parts[0].cols, part.cols);
    }
    if (part.cols % format.values != 0) {
      refuse("quantised weight: part {}: {} columns are not blocks of {}, as {} has them", i, part.cols, format.values,
             format.name);
    }
    checked_bytes("quantised weight", part.rows, part.cols / format.values, static_cast<std::size_t>(format.bytes));
    if (add_overflows(rows, part.rows, rows)) refuse("quantised weight: too many rows");
  }
  return rows;
}

void check_matmul(const ConstTensorView& out, const ConstTensorView& x, const Matrix& w, std::span<const float> bias,
                  DType operand, DType gate) {
  check_operand("matmul x", x, x.rows, w.cols, operand);
  check_operand("matmul out", out, x.rows, w.rows, bias.empty() ? gate : DType::f32);
  if (!bias.empty()) check_length("matmul bias", bias.size(), w.rows);
}

void check_rms_norm(const ConstTensorView& out, const ConstTensorView& x, std::span<const float> weight,
                    DType operand) {
  check_shape("rms_norm x", x, x.rows, static_cast<std::int64_t>(weight.size()));
  check_operand("rms_norm out", out, x.rows, x.cols, operand);
}

void check_head_norm(const ConstTensorView& x, std::span<const float> weight) {
  check_shape("head_rms_norm x", x, x.rows, x.cols);
  if (weight.empty() || x.cols % static_cast<std::int64_t>(weight.size()) != 0) {
    refuse("head_rms_norm: {} columns are not groups of {}", x.cols, weight.size());
  }
}

void check_angles(const RopeAngles& angles, std::int64_t rows, std::int32_t head_dim) {
  check_shape("rope cos", angles.cos, rows, angles.cos.cols);
  check_shape("rope sin", angles.sin, rows, angles.cos.cols);
  if (2 * angles.cos.cols > head_dim) {
    refuse("rope: {} rotated columns do not fit heads of {}", 2 * angles.cos.cols, head_dim);
  }
}

void check_rope(const ConstTensorView& x, std::int32_t head_dim, const RopeAngles& angles) {
  check_shape("rope x", x, x.rows, x.cols);
  if (head_dim <= 0 || x.cols % head_dim != 0) refuse("rope: {} columns are not heads of {}", x.cols, head_dim);
  check_angles(angles, x.rows, head_dim);
}

void check_kv_shape(const KvShape& shape) {
  if (shape.kv_heads <= 0) refuse("kv: expected at least 1 head, got {}", shape.kv_heads);
  if (shape.head_dim <= 0 || shape.head_dim % 8 != 0 || shape.head_dim > kMaxHeadDim) {
    refuse("kv: expected a head width that is a multiple of 8 up to {}, got {}", kMaxHeadDim, shape.head_dim);
  }
  if (shape.dtype == DType::f16) refuse("kv: expected bf16 or f32, got f16");
}

void check_capacity(std::int32_t capacity) {
  if (capacity <= 0 || capacity % kKeyBlock != 0) {
    refuse("kv: expected a capacity that is a positive multiple of {}, got {}", kKeyBlock, capacity);
  }
}

void check_rows(std::span<const KvSlab> slabs, const RowSpan& rows, NoSequence none) {
  check_length("rows.sequence", rows.sequence.size(), rows.size());
  check_length("rows.key_begin", rows.key_begin.size(), rows.size());
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    if (rows.sequence[i] == kNoSequence && none == NoSequence::passed_over) continue;
    check_index("rows.sequence", rows.sequence.subspan(i, 1), static_cast<std::int64_t>(slabs.size()));
    const KvSlab& slab = slabs[rows.sequence[i]];
    if (slab.keys == nullptr || slab.values == nullptr) refuse("kv: slab {} has no memory", rows.sequence[i]);
    check_capacity(slab.capacity);
    const std::int32_t position = rows.position[i];
    if (position < 0 || position >= slab.capacity) {
      refuse("row {}: position {} is outside [0, {})", i, position, slab.capacity);
    }
    if (rows.key_begin[i] < 0 || rows.key_begin[i] > position) {
      refuse("row {}: key_begin {} is outside [0, {}]", i, rows.key_begin[i], position);
    }
  }
}

void check_store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, const ConstTensorView& k,
                    const ConstTensorView& v, const RopeAngles& angles) {
  check_kv_shape(shape);
  check_rows(slabs, rows, NoSequence::passed_over);
  const std::int64_t cols = std::int64_t{shape.kv_heads} * shape.head_dim;
  if (k.dtype != DType::f32) check_dtype("store_kv k", k, shape.dtype);
  check_dtype("store_kv v", v, k.dtype);
  check_matrix("store_kv k", k, rows.size(), cols);
  check_matrix("store_kv v", v, rows.size(), cols);
  check_angles(angles, rows.size(), shape.head_dim);
}

void check_insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                     std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                     std::span<const KvCorrection> corrections, const RopeAngles& angles) {
  check_kv_shape(shape);
  const std::int64_t rows = angles.cos.rows, cols = std::int64_t{shape.kv_heads} * shape.head_dim;
  for (const KvSlab& slab : layers) {
    check_capacity(slab.capacity);
    if (slab.keys == nullptr || slab.values == nullptr) refuse("insert_kv: a layer has no memory");
    if (begin < 0 || rows > slab.capacity - begin)
      refuse("insert_kv: positions [{}, {}) are outside [0, {})", begin, begin + rows, slab.capacity);
  }
  if (!k.empty() || !v.empty()) {
    const auto count = static_cast<std::int64_t>(layers.size());
    check_length("insert_kv k", k.size(), count);
    check_length("insert_kv v", v.size(), count);
  }
  for (const auto& all : {k, v}) {
    for (const ConstTensorView& one : all) {
      check_dtype("insert_kv k and v", one, k[0].dtype == DType::f32 ? DType::f32 : shape.dtype);
      check_matrix("insert_kv k and v", one, rows, cols);
    }
  }
  check_angles(angles, rows, shape.head_dim);
  for (const KvCorrection& correction : corrections) {
    check_length("insert_kv offset", correction.offset.size(), static_cast<std::int64_t>(layers.size()));
    check_length("insert_kv row", correction.row.size(), rows);
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();  // rows of an offset
    for (const ConstTensorView& offset : correction.offset) {
      if (offset.data == nullptr) continue;
      check_dtype("insert_kv offset", offset, DType::bf16);
      check_matrix("insert_kv offset", offset, offset.rows, 2 * cols);
      fewest = std::min(fewest, offset.rows);
    }
    check_index("insert_kv row", correction.row, fewest);
  }
}

void check_align(const ConstTensorView& sketches, std::span<const TextPair> pairs) {
  check_dtype("align sketches", sketches, DType::f32);
  check_matrix("align sketches", sketches, sketches.rows, editing::kSketchWidth);
  for (const TextPair& pair : pairs) {
    check_index("align text", pair.text, sketches.rows);
    check_index("align other", pair.other, sketches.rows);
  }
}

void check_save_kv(const ConstTensorView& raw_k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin) {
  check_kv_shape(shape);
  check_capacity(slab.capacity);
  if (slab.raw_keys == nullptr || slab.values == nullptr) refuse("save_kv: the slab keeps no raw keys");
  const std::int64_t cols = std::int64_t{shape.kv_heads} * shape.head_dim;
  check_dtype("save_kv raw_k", raw_k, shape.dtype);
  check_dtype("save_kv v", v, shape.dtype);
  check_matrix("save_kv raw_k", raw_k, raw_k.rows, cols);
  check_matrix("save_kv v", v, raw_k.rows, cols);
  if (begin < 0 || raw_k.rows > slab.capacity - begin) {
    refuse("save_kv: positions [{}, {}) are outside [0, {})", begin, begin + raw_k.rows, slab.capacity);
  }
}

void check_value_deviation(std::size_t out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                           const ConstTensorView& v) {
  check_kv_shape(shape);
  check_rows(slabs, rows, NoSequence::passed_over);
  check_length("value_deviation out", out, rows.size());
  check_shape("value_deviation v", v, rows.size(), std::int64_t{shape.kv_heads} * shape.head_dim);
}

void check_copy_rows(std::string_view name, const ConstTensorView& some, const ConstTensorView& all,
                     std::span<const std::int32_t> index) {
  check_matrix(name, some, static_cast<std::int64_t>(index.size()), all.cols);
  check_matrix(name, all, all.rows, all.cols);
  for (const DType dtype : {some.dtype, all.dtype}) {
    if (dtype != DType::f32 && dtype != DType::bf16) refuse("{}: expected f32 or bf16, got {}", name, name_of(dtype));
  }
  check_index(name, index, all.rows);
}

void check_load_kv(const ConstTensorView& k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin) {
  check_kv_shape(shape);
  check_capacity(slab.capacity);
  if (slab.keys == nullptr || slab.values == nullptr) refuse("load_kv: the slab has no memory");
  const std::int64_t cols = std::int64_t{shape.kv_heads} * shape.head_dim;
  check_shape("load_kv k", k, k.rows, cols);
  check_shape("load_kv v", v, k.rows, cols);
  if (begin < 0 || k.rows > slab.capacity - begin) {
    refuse("load_kv: positions [{}, {}) are outside [0, {})", begin, begin + k.rows, slab.capacity);
  }
}

void check_attention(const ConstTensorView& out, const ConstTensorView& q, std::span<const KvSlab> slabs,
                     const KvShape& shape, const RowSpan& rows, std::span<AttentionSum* const> received,
                     DType operand) {
  check_kv_shape(shape);
  check_rows(slabs, rows);
  if (!received.empty()) check_length("attention received", received.size(), static_cast<std::int64_t>(slabs.size()));
  check_shape("attention q", q, rows.size(), q.cols);
  check_operand("attention out", out, rows.size(), q.cols, operand);
  const std::int64_t group = std::int64_t{shape.kv_heads} * shape.head_dim;
  if (q.cols == 0 || q.cols % group != 0) {
    refuse("attention: {} query columns are not a multiple of {} kv heads of {}", q.cols, shape.kv_heads,
           shape.head_dim);
  }
}

void check_sinks(std::span<const float> sinks, const ConstTensorView& q, const KvShape& shape) {
  if (!sinks.empty()) check_length("attention sinks", sinks.size(), q.cols / shape.head_dim);
}

void check_gate(const ConstTensorView& out, const ConstTensorView& gate_up, DType operand, DType gate) {
  check_operand("gate out", out, out.rows, out.cols, operand);
  check_operand("gate gate_up", gate_up, out.rows, 2 * out.cols, gate);
}

void check_multiply(const ConstTensorView& x, const ConstTensorView& by) {
  check_shape("multiply x", x, x.rows, x.cols);
  check_shape("multiply by", by, x.rows, x.cols);
}

void check_weighted_rows(const ConstTensorView& x, const ConstTensorView& in, std::span<const std::int32_t> index,
                         std::span<const float> weight) {
  check_shape("add_weighted_rows x", x, x.rows, x.cols);
  check_shape("add_weighted_rows in", in, static_cast<std::int64_t>(index.size()), x.cols);
  check_length("add_weighted_rows weight", weight.size(), static_cast<std::int64_t>(index.size()));
  check_index("add_weighted_rows index", index, x.rows);
}

void check_soft_cap(const ConstTensorView& x, float cap) {
  check_shape("soft_cap x", x, x.rows, x.cols);
  if (!(cap > 0.0f)) refuse("soft_cap: expected a cap above 0, got {}", cap);
}

void check_mix(const ConstTensorView& out, const ConstTensorView& x, const ConstTensorView& in,
               const ConstTensorView& weight, std::int64_t width) {
  if (width < 1 || out.cols % width != 0 || in.cols % width != 0)
    refuse("mix: {} and {} columns are not streams of {}", out.cols, in.cols, width);
  check_shape("mix out", out, out.rows, out.cols);
  check_shape("mix x", x, out.rows, out.cols);
  check_shape("mix in", in, out.rows, in.cols);
  check_shape("mix weight", weight, out.rows, out.cols / width * (in.cols / width));
}

void check_correct(const ConstTensorView& out, const ConstTensorView& x, const ConstTensorView& in,
                   const ConstTensorView& weight, std::int32_t active) {
  check_shape("correct in", in, out.rows, in.cols);
  if (in.cols < 1 || out.cols % in.cols != 0) refuse("correct: {} columns are not streams of {}", out.cols, in.cols);
  const std::int64_t streams = out.cols / in.cols;
  if (active < 0 || active >= streams) refuse("correct: stream {} is outside [0, {})", active, streams);
  check_shape("correct out", out, out.rows, out.cols);
  check_shape("correct x", x, out.rows, out.cols);
  check_shape("correct weight", weight, out.rows, streams);
}

void check_match_rms(const ConstTensorView& x, const ConstTensorView& like, float least) {
  check_shape("match_rms x", x, x.rows, x.cols);
  check_shape("match_rms like", like, x.rows, x.cols);
  if (!(least > 0.0f)) refuse("match_rms: expected a least mean above 0, got {}", least);
}

void check_keep_peaks(const ConstTensorView& x, float deviations) {
  check_shape("keep_peaks x", x, x.rows, x.cols);
  if (!std::isfinite(deviations)) refuse("keep_peaks: expected a finite number of deviations, got {}", deviations);
}

void check_scale_columns(const ConstTensorView& out, const ConstTensorView& x, std::span<const float> weight) {
  check_shape("scale_columns x", x, x.rows, x.cols);
  check_shape("scale_columns out", out, x.rows, x.cols);
  check_length("scale_columns weight", weight.size(), x.cols);
}

}  // namespace baton
