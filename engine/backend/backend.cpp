// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "engine/backend/checks.h"
#include "engine/backend/host_operations.h"
#include "engine/base/clock.h"

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

void Operations::norm_store_rope(TensorView q, TensorView k, ConstTensorView v, const HeadNorms& norms,
                                 std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                                 const RopeAngles& angles) {
  if (!norms.q.empty()) head_rms_norm(q, norms.q, norms.eps);
  if (!norms.k.empty()) head_rms_norm(k, norms.k, norms.eps);
  store_kv(slabs, shape, rows, k, v, angles);
  rope(q, shape.head_dim, angles);
}

void Operations::choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) {
  check_shape("choose logits", logits, static_cast<std::int64_t>(how.size()), logits.cols);
  for (std::size_t i = 0; i < how.size(); ++i) {
    const auto* row = reinterpret_cast<const float*>(logits.data) + static_cast<std::int64_t>(i) * logits.stride;
    out[i] = chooser_.choose({row, static_cast<std::size_t>(logits.cols)}, how[i]);
  }
}

}  // namespace baton
