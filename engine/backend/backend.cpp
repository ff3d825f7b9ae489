// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <system_error>
#include <thread>

#include "engine/backend/checks.h"
#include "engine/backend/random_weights.h"
#include "engine/base/clock.h"

namespace baton {

void Backend::run_step(const std::function<void()>& work, bool /*comes_again*/) { work(); }

void Backend::clear(std::byte* out, std::size_t bytes) { std::memset(out, 0, bytes); }

Copying Backend::copy_up(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes) {
  std::memcpy(device.data() + begin, host.data() + begin, bytes);
  return 0;
}

Copying Backend::copy_down(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes) {
  return copy_up(host, device, begin, bytes);
}

void Backend::follow(Copying /*copying*/) {}

void Backend::mark() { marks_.push_back(std::chrono::steady_clock::now()); }

std::vector<double> Backend::take_marks() {
  std::vector<double> between;
  for (std::size_t i = 1; i < marks_.size(); ++i) between.push_back(milliseconds(marks_[i] - marks_[i - 1]));
  marks_.clear();
  return between;
}

std::unique_ptr<Matrix> Backend::random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                               float deviation) {
  const std::size_t count = checked_bytes("random_matrix", rows, cols, 1);
  const auto values = std::make_unique_for_overwrite<std::uint16_t[]>(count);
  const auto fill = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values[i] = f32_to_bf16(random_weight(seed, i, deviation));
  };
  const auto threads = static_cast<std::size_t>(std::max(1, info().threads));
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(fill, count * t / threads, count * (t + 1) / threads);
  fill(0, count / threads);
  others.clear();
  const ConstTensorView part =
      BasicView<const std::byte>{reinterpret_cast<const std::byte*>(values.get()), DType::bf16, rows, cols, cols};
  return load_matrix({&part, 1}, dtype);
}

void Backend::norm_store_rope(TensorView q, TensorView k, ConstTensorView v, const HeadNorms& norms,
                              std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                              const RopeAngles& angles) {
  if (!norms.q.empty()) head_rms_norm(q, norms.q, norms.eps);
  if (!norms.k.empty()) head_rms_norm(k, norms.k, norms.eps);
  store_kv(slabs, shape, rows, k, v, angles);
  rope(q, shape.head_dim, angles);
}

void Backend::choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) {
  check_shape("choose logits", logits, static_cast<std::int64_t>(how.size()), logits.cols);
  for (std::size_t i = 0; i < how.size(); ++i) {
    const auto* row = reinterpret_cast<const float*>(logits.data) + static_cast<std::int64_t>(i) * logits.stride;
    out[i] = chooser_.choose({row, static_cast<std::size_t>(logits.cols)}, how[i]);
  }
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
  } catch (const std::system_error&) {  // no more threads: those there are do it
  }
  work();
  for (std::future<void>& one : others) one.get();
  return alignments;
}

}  // namespace baton
